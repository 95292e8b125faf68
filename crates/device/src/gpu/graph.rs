//! Captured graphs of work. A graph keeps addresses, not memory: the memory has to live as long as the graph is launched.

use super::device::Gpu;
use super::driver::{Executable, Fault, Graph};
use super::error::DeviceFault;
use std::cell::Cell;
use std::marker::PhantomData;

/// Work that was captured in a stream, and is launched as a whole any number of times. A graph can move to another thread, but not
/// be shared: drivers let one thread at a time use it.
pub struct GpuGraph {
    gpu: Gpu,
    graph: Graph,
    executable: Executable,
    one_thread: PhantomData<Cell<()>>,
}

impl Gpu {
    /// Captures what `work` enqueues, without running it, as a graph that can be launched again and again.
    ///
    /// The kernels must have been launched before, so that they are loaded, and `work` must not allocate memory.
    ///
    /// # Errors
    /// The errors of `work`; the driver's error.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), DeviceFault>) -> Result<GpuGraph, DeviceFault> {
        let (driver, stream) = self.stream.bound()?;
        let failed = |fault: Fault| self.stream.failed(fault, "a graph");
        // SAFETY: the stream lives as long as `self`.
        unsafe { driver.begin_capture(stream) }.map_err(failed)?;
        let worked = work();
        // SAFETY: the stream is being captured.
        let ended = unsafe { driver.end_capture(stream) }.map_err(failed);
        let graph = match ended {
            Ok(graph) => graph,
            Err(error) => return Err(worked.err().unwrap_or(error)),
        };
        // SAFETY: the graph is complete, and is kept beside what is made of it.
        let made = worked.and_then(|()| unsafe { driver.instantiate(graph) }.map_err(failed));
        match made {
            Ok(executable) => Ok(GpuGraph {
                gpu: self.clone(),
                graph,
                executable,
                one_thread: PhantomData,
            }),
            Err(error) => {
                // SAFETY: it is not used again.
                unsafe { driver.destroy_graph(graph) };
                Err(error)
            }
        }
    }
}

impl GpuGraph {
    /// Enqueues all work of the graph in the stream that it was captured from.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The memory that the captured work uses is still allocated.
    pub unsafe fn launch(&self) -> Result<(), DeviceFault> {
        let (driver, stream) = self.gpu.stream.bound()?;
        // SAFETY: graph and stream live as long as `self`; the memory is the caller's promise.
        unsafe { driver.launch_graph(self.executable, stream) }
            .map_err(|fault| self.gpu.stream.failed(fault, "a graph"))
    }
}

impl Drop for GpuGraph {
    fn drop(&mut self) {
        if let Ok((driver, _)) = self.gpu.stream.bound() {
            // SAFETY: both are this graph's own and are not used again.
            unsafe {
                driver.destroy_executable(self.executable);
                driver.destroy_graph(self.graph);
            }
        }
    }
}
