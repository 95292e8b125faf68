//! Timers of calls on the CPU and on a device. Calls use many sets of inputs and outputs in turn, so that a set has left the
//! caches before it is used again.

use robocache::device::gpu::{DeviceFault, Gpu};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Number of bytes that calls touch before a set of inputs and outputs is used again. It is about four times the L2 cache of an
/// H200, and twice that of a B200.
const ROTATED_BYTES: usize = 256 << 20;
const SETS: (usize, usize) = (8, 4096);
/// Number of touched bytes above which a call evicts the data of the call before from all caches. A few sets of inputs and
/// outputs are enough then.
const LARGE_SET_BYTES: usize = 128 << 20;
const LARGE_SETS: usize = 4;
/// Minimum number of calls in a CUDA graph, so that the time between two replays is negligible.
const GRAPH_LAUNCHES: usize = 64;

const SPENT: Duration = Duration::from_millis(300);
const WARM_UP: usize = 3;
const RUNS: (usize, usize) = (5, 400);

static QUICK: OnceLock<bool> = OnceLock::new();

/// Switches from measuring to a quick test: from now on small work runs a few times, and large work is skipped.
pub fn be_quick() {
    QUICK.get_or_init(|| true);
}

fn is_quick() -> bool {
    QUICK.get().is_some()
}

/// True if work of `elements` elements is measured; after [`be_quick`] only small work is.
pub fn is_wanted(elements: usize) -> bool {
    !is_quick() || elements <= 1 << 22
}

/// Measured times of one operation, each in us for one call.
pub struct Times {
    pub us: Vec<f64>,
    /// Times on the device if no kernel starts before its predecessor has ended; empty for work on the CPU.
    pub early_off: Vec<f64>,
    /// Times, by the CPU's clock, of calls that are issued and waited for one by one; empty for work on the CPU.
    pub alone: Vec<f64>,
    /// Number of input and output sets that the calls used in turn; `None` for work on the CPU.
    pub sets: Option<usize>,
}

impl From<Vec<f64>> for Times {
    fn from(us: Vec<f64>) -> Self {
        Self {
            us,
            early_off: Vec::new(),
            alone: Vec::new(),
            sets: None,
        }
    }
}

/// Returns the percentile `part`, in 0..=1, of the values: 0.5 is the median.
pub fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(part * (sorted.len() - 1) as f64).round() as usize]
}

/// Number of sets of inputs and outputs that calls must use in turn if a call touches `touched_bytes` of its set. Untouched memory
/// of a set does not count, since it is not in a cache.
pub fn sets_for(touched_bytes: usize) -> usize {
    if is_quick() {
        return 2;
    }
    if touched_bytes > LARGE_SET_BYTES {
        return LARGE_SETS;
    }
    ROTATED_BYTES.div_ceil(touched_bytes.max(1)).clamp(SETS.0, SETS.1)
}

fn runs_for(one: Duration) -> usize {
    if is_quick() {
        return 2;
    }
    let fit = SPENT.as_secs_f64() / one.as_secs_f64().max(1e-9);
    (fit as usize).clamp(RUNS.0, RUNS.1)
}

/// Times calls of `work` by the CPU's clock, us. `work` gets the index of a set of inputs and outputs; calls use the sets
/// in turn.
pub fn host(sets: usize, mut work: impl FnMut(usize)) -> Vec<f64> {
    let mut one = Duration::MAX;
    for run in 0..WARM_UP {
        let start = Instant::now();
        work(run % sets);
        one = one.min(start.elapsed());
    }
    // A short operation gets more runs.
    let runs = if one < Duration::from_millis(1) {
        2 * RUNS.1
    } else {
        runs_for(one)
    };
    (WARM_UP..WARM_UP + runs)
        .map(|run| {
            let start = Instant::now();
            work(run % sets);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

/// Length of the pause between two calls.
#[derive(Clone, Copy)]
pub enum Pace {
    /// No pause.
    AtOnce,
    /// The pause until a lidar's next sweep, in which caches, cores and the device cool down.
    Live,
}

const LIVE_PAUSE: Duration = Duration::from_millis(25);
const LIVE_RUNS: usize = 100;

impl Pace {
    /// Suffix of a row's name for this pace.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtOnce => "",
            Self::Live => ", 40 Hz",
        }
    }

    fn wait(self) {
        match self {
            Self::Live if !is_quick() => std::thread::sleep(LIVE_PAUSE),
            _ => {}
        }
    }
}

/// Times several functions by the CPU's clock, us, each once in a round. `work` gets the index of the function and of the
/// round. Returns the times of each function.
pub fn in_turn(works: usize, pace: Pace, mut work: impl FnMut(usize, usize)) -> Vec<Vec<f64>> {
    let mut one = Duration::MAX;
    for run in 0..WARM_UP {
        let start = Instant::now();
        (0..works).for_each(|which| work(which, run));
        one = one.min(start.elapsed() / works.max(1) as u32);
    }
    let runs = match pace {
        Pace::AtOnce => runs_for(one),
        Pace::Live if is_quick() => 2,
        Pace::Live => LIVE_RUNS,
    };
    let mut times = vec![Vec::with_capacity(runs); works];
    for run in WARM_UP..WARM_UP + runs {
        for (which, times) in times.iter_mut().enumerate() {
            pace.wait();
            let start = Instant::now();
            work(which, run);
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    times
}

/// Number of calls in a CUDA graph: one for each of `sets` sets of inputs and outputs, or several if there are few sets.
fn calls_for(sets: usize) -> usize {
    if sets > LARGE_SETS && !is_quick() {
        sets * GRAPH_LAUNCHES.div_ceil(sets)
    } else {
        sets
    }
}

/// Times the work that `launch` enqueues in the stream of `gpu`. Its argument is the index of a set of inputs and outputs, less
/// than `calls`. All calls are captured in one CUDA graph, which is replayed many times, with and without the early start of
/// kernels. Single calls that are waited for are timed as well.
pub fn device(
    gpu: &Gpu,
    calls: usize,
    mut launch: impl FnMut(usize) -> Result<(), DeviceFault>,
) -> Result<Times, DeviceFault> {
    // Kernels are loaded at their first launch, which must not be within a capture.
    (0..calls).try_for_each(&mut launch)?;
    gpu.synchronize()?;
    let us = graph(gpu, calls, &mut launch)?;
    gpu.set_early_start(false);
    let early_off = graph(gpu, calls, &mut launch);
    gpu.set_early_start(true);
    let early_off = early_off?;
    // `alone` comes last: an operation that alternates between states is in another state afterwards than a graph expects.
    let alone = alone(gpu, calls, &mut launch)?;
    Ok(Times {
        us,
        early_off,
        alone,
        sets: Some(calls),
    })
}

/// Captures all calls in a CUDA graph, each several times if there are few, and times its replays. Returns the times of one
/// call, us.
fn graph(
    gpu: &Gpu,
    calls: usize,
    launch: &mut impl FnMut(usize) -> Result<(), DeviceFault>,
) -> Result<Vec<f64>, DeviceFault> {
    let captured = calls_for(calls);
    let graph = gpu.capture(|| (0..captured).try_for_each(|call| launch(call % calls)))?;
    // SAFETY: the memory that `launch` uses outlives this function, and the graph does not.
    let replay = || unsafe { graph.launch() };
    replay()?;
    gpu.synchronize()?;
    let start = Instant::now();
    replay()?;
    gpu.synchronize()?;
    let runs = runs_for(start.elapsed());
    marked(gpu, runs, captured, replay)
}

/// Times single calls by the CPU's clock, us, from before the launch until the device is done.
fn alone(
    gpu: &Gpu,
    calls: usize,
    launch: &mut impl FnMut(usize) -> Result<(), DeviceFault>,
) -> Result<Vec<f64>, DeviceFault> {
    let mut once = |call: usize| {
        let start = Instant::now();
        launch(call % calls)?;
        gpu.synchronize()?;
        Ok::<_, DeviceFault>(start.elapsed())
    };
    let mut one = Duration::MAX;
    for call in 0..WARM_UP {
        one = one.min(once(call)?);
    }
    (WARM_UP..WARM_UP + runs_for(one))
        .map(|call| once(call).map(|took| took.as_secs_f64() * 1e6))
        .collect()
}

/// Times calls on the device without a CUDA graph, for work that a graph does in another way, such as copies.
pub fn stream(
    gpu: &Gpu,
    sets: usize,
    mut launch: impl FnMut(usize) -> Result<(), DeviceFault>,
) -> Result<Times, DeviceFault> {
    let mut all = || (0..sets).try_for_each(&mut launch);
    all()?;
    gpu.synchronize()?;
    let start = Instant::now();
    all()?;
    gpu.synchronize()?;
    let us = marked(gpu, runs_for(start.elapsed()), sets, all)?;
    Ok(Times {
        sets: Some(sets),
        ..Times::from(us)
    })
}

/// Times `runs` rounds of `calls` calls by device events before and after each round. Returns the time of one call in each
/// round, us.
fn marked(
    gpu: &Gpu,
    runs: usize,
    calls: usize,
    mut round: impl FnMut() -> Result<(), DeviceFault>,
) -> Result<Vec<f64>, DeviceFault> {
    let mut marks = Vec::new();
    let mark = |marks: &mut Vec<_>| {
        let event = gpu.event()?;
        event.record()?;
        marks.push(event);
        Ok::<_, DeviceFault>(())
    };
    mark(&mut marks)?;
    for _ in 0..runs {
        round()?;
        mark(&mut marks)?;
    }
    gpu.synchronize()?;
    marks
        .windows(2)
        .map(|pair| pair[1].elapsed_us(&pair[0]).map(|us| us / calls as f64))
        .collect()
}
