// The driver's streams, events and graphs.
#include "entry.h"

using namespace emulator;

// Streams.

API cuStreamCreateWithPriority(Stream **stream, unsigned flags, int) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        *stream = new Stream();
        (*stream)->context = &context;
        // 1: CU_STREAM_NON_BLOCKING
        (*stream)->blocking = (flags & 1) == 0;
        context.streams.insert(*stream);
        return SUCCESS;
    });
}

API cuStreamCreate(Stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API cuStreamDestroy_v2(Stream *stream) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        if (reinterpret_cast<uintptr_t>(stream) <= 2 || stream_of_any(stream) == nullptr) return INVALID_HANDLE;
        drain(stream, stream->submitted);
        for (auto &[handle, event] : state().events) {
            if (event->stream == stream) event->stream = nullptr;
        }
        stream->context->streams.erase(stream);
        delete stream;
        return SUCCESS;
    });
}

API cuStreamSynchronize(Stream *handle) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        Stream *stream = stream_of_any(handle);
        if (stream == nullptr) return INVALID_HANDLE;
        if (stream->captured) {
            stream->invalidated = true;
            return STREAM_CAPTURE_UNSUPPORTED;
        }
        drain(stream, stream->submitted);
        return stream->context->broken;
    });
}

API cuStreamQuery(Stream *stream) { return cuStreamSynchronize(stream); }

API cuStreamWaitEvent(Stream *handle, Event *handle_of_event, unsigned) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        Stream *stream = stream_of_any(handle);
        auto found = state().events.find(handle_of_event);
        if (stream == nullptr || found == state().events.end()) return INVALID_HANDLE;
        std::shared_ptr<Event> event = found->second;
        if (event->captured) {
            // The stream joins the capture. The works of a capture are in the order of their calls.
            if (!stream->captured) {
                stream->captured = event->captured;
                stream->mode = 2;
            }
            return stream->captured == event->captured ? SUCCESS : STREAM_CAPTURE_ISOLATION;
        }
        if (stream->captured) {
            stream->invalidated = true;
            return STREAM_CAPTURE_ISOLATION;
        }
        Stream *other = event->stream;
        uint64_t at = event->at;
        if (!event->recorded || other == nullptr) return SUCCESS;
        return submit(stream, [=] {
            // A stream that does not exist any more has been drained.
            if (stream_of_any(other) != nullptr) drain(other, at);
        });
    });
}

API cuLaunchHostFunc(Stream *handle, void (*function)(void *), void *data) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        return stream != nullptr ? submit(stream, [=] { function(data); }) : INVALID_HANDLE;
    });
}

// Events.

API cuEventCreate(Event **event, unsigned) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        auto made = std::make_shared<Event>();
        made->context = &context;
        *event = made.get();
        state().events[*event] = std::move(made);
        return SUCCESS;
    });
}

API cuEventDestroy_v2(Event *event) {
    return entry(__func__, Needs::driver,
                 [&](Context &) -> int { return state().events.erase(event) > 0 ? SUCCESS : INVALID_HANDLE; });
}

API cuEventRecord(Event *handle_of_event, Stream *handle) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        auto found = state().events.find(handle_of_event);
        Stream *stream = stream_of(context, handle);
        if (found == state().events.end() || stream == nullptr || found->second->context != &context)
            return INVALID_HANDLE;
        std::shared_ptr<Event> event = found->second;
        event->captured = stream->captured;
        if (stream->captured) return SUCCESS;
        event->recorded = true;
        event->stream = stream;
        event->at = stream->submitted + 1;
        return submit(stream, [=] { event->time = std::chrono::steady_clock::now(); });
    });
}

API cuEventSynchronize(Event *handle) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        auto found = state().events.find(handle);
        if (found == state().events.end()) return INVALID_HANDLE;
        Event &event = *found->second;
        if (event.captured) return CAPTURED_EVENT;
        if (event.stream != nullptr) drain(event.stream, event.at);
        return event.context->broken;
    });
}

API cuEventQuery(Event *event) { return cuEventSynchronize(event); }

API cuEventElapsedTime_v2(float *milliseconds, Event *since, Event *until) {
    return entry(__func__, Needs::context, [&](Context &) -> int {
        if (state().events.count(since) == 0 || state().events.count(until) == 0) return INVALID_HANDLE;
        if (!since->recorded || !until->recorded) return INVALID_HANDLE;
        for (Event *event : {since, until}) {
            if (event->stream != nullptr) drain(event->stream, event->at);
        }
        *milliseconds = std::chrono::duration<float, std::milli>(until->time - since->time).count();
        return SUCCESS;
    });
}

API cuEventElapsedTime(float *milliseconds, Event *since, Event *until) {
    return cuEventElapsedTime_v2(milliseconds, since, until);
}

// Graphs: the works of a capture, in their order.

API cuStreamBeginCapture_v2(Stream *handle, int mode) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return INVALID_HANDLE;
        if (stream == &context.null_stream) return STREAM_CAPTURE_UNSUPPORTED;
        if (stream->captured) return ILLEGAL_STATE;
        stream->captured = std::make_shared<Graph>();
        stream->origin = true;
        stream->invalidated = false;
        stream->mode = mode;
        stream->capturer = std::this_thread::get_id();
        return SUCCESS;
    });
}

API cuStreamEndCapture(Stream *handle, Graph **graph) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        *graph = nullptr;
        if (stream == nullptr) return INVALID_HANDLE;
        if (!stream->captured || !stream->origin) return ILLEGAL_STATE;
        std::shared_ptr<Graph> captured = stream->captured;
        bool invalidated = false;
        for (auto &other : state().contexts) {
            for (Stream *member : other->streams) {
                if (member->captured != captured) continue;
                invalidated |= member->invalidated;
                member->captured = nullptr;
                member->origin = member->invalidated = false;
            }
        }
        for (auto &[handle_of_event, event] : state().events) {
            if (event->captured == captured) event->captured = nullptr;
        }
        if (invalidated) return STREAM_CAPTURE_INVALIDATED;
        *graph = captured.get();
        state().graphs[*graph] = captured;
        return SUCCESS;
    });
}

API cuThreadExchangeStreamCaptureMode(int *mode) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        std::swap(*mode, capture_mode());
        return SUCCESS;
    });
}

API cuStreamIsCapturing(Stream *handle, int *status) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return INVALID_HANDLE;
        *status = !stream->captured ? 0 : stream->invalidated ? 2 : 1;
        return SUCCESS;
    });
}

API cuGraphDestroy(Graph *graph) {
    return entry(__func__, Needs::driver,
                 [&](Context &) -> int { return state().graphs.erase(graph) > 0 ? SUCCESS : INVALID_VALUE; });
}

API cuGraphInstantiateWithFlags(Executable **executable, Graph *graph, unsigned long long) {
    return entry(__func__, Needs::context, [&](Context &context) -> int {
        if (state().graphs.count(graph) == 0) return INVALID_VALUE;
        *executable = new Executable{&context, graph->works};
        state().executables.insert(*executable);
        return SUCCESS;
    });
}

API cuGraphExecDestroy(Executable *executable) {
    return entry(__func__, Needs::driver, [&](Context &) -> int {
        if (state().executables.erase(executable) == 0) return INVALID_VALUE;
        delete executable;
        return SUCCESS;
    });
}

static int launch_graph(const char *call, Executable *executable, Stream *handle, bool run) {
    return entry(call, Needs::context, [&](Context &context) -> int {
        Stream *stream = stream_of(context, handle);
        if (stream == nullptr) return explain(INVALID_HANDLE, "%s: a stream of another device", call);
        if (state().executables.count(executable) == 0 || executable->context != &context) return INVALID_VALUE;
        if (!run) return SUCCESS;
        return submit(stream, [works = executable->works, at = &context] {
            for (const Work &work : works) {
                if (at->broken == SUCCESS) work();
            }
        });
    });
}

API cuGraphLaunch(Executable *executable, Stream *stream) { return launch_graph(__func__, executable, stream, true); }
API cuGraphUpload(Executable *executable, Stream *stream) { return launch_graph(__func__, executable, stream, false); }
