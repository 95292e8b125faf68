//! Chooses between the CPU and the GPU implementation of an operation, message by message. Both give the same bits, so that only
//! time and memory count.
//!
//! `auto` explores, then commits: for each size of work, by powers of two, both implementations are timed a few times, and the
//! faster one does the rest. A device that ran out of memory is left alone for a time that grows exponentially.

use super::gpu::{DeviceFault, Gpu};
use super::{Device, Placement};
use std::time::{Duration, Instant};

/// First back-off after a device ran out of memory: the CPU does the work for this time.
pub const FIRST_RETRY: Duration = Duration::from_secs(10);

/// Longest back-off after a device ran out of memory. The back-off doubles if memory is lacking again soon after its end.
pub const LONGEST_RETRY: Duration = Duration::from_secs(320);

/// Unit of an operation's work that a CPU and a GPU implementation can do, with the same bits as result.
pub trait Work {
    /// Type of the CPU implementation, which `on_cpu` borrows.
    type Cpu;
    /// Type of the GPU implementation, which `on_gpu` borrows.
    type Gpu;
    /// Result of the work, whichever implementation did it.
    type Done;
    /// Error of the GPU implementation. The CPU implementation has no errors.
    type Fault;

    /// Does the work with the CPU implementation, which always succeeds.
    fn on_cpu(&mut self, cpu: &mut Self::Cpu) -> Self::Done;

    /// Does the work with the GPU implementation.
    ///
    /// # Errors
    /// The device's error, after which `on_cpu` can still do the work.
    fn on_gpu(&mut self, gpu: &mut Self::Gpu) -> Result<Self::Done, Self::Fault>;
}

/// Chooser between the CPU implementation of an operation, which is always there, and its GPU implementation `G`.
///
/// Both implementations give the same values, so `auto` goes by time alone: it times both on each size of work. Work below a floor
/// goes to the CPU without a trial, since a launch alone takes longer.
///
/// If the device runs out of memory, work of that size and more goes to the CPU for [`FIRST_RETRY`]. This back-off doubles each
/// time that memory is lacking again, up to [`LONGEST_RETRY`]. After the back-off the trials begin anew. After any other failure of
/// the device, `auto` stays on the CPU; a device that was asked for by name is [lost](Self::take_lost).
pub struct Backend<G> {
    pub(super) operation: &'static str,
    on_gpu: Option<G>,
    gpu: Option<Gpu>,
    /// Times of both implementations by size of work; `None` unless the choice is `auto`.
    trials: Option<Trials>,
    /// Smallest size of work, bytes, that did not fit the device's memory; `usize::MAX` if all work has fitted.
    least_too_large: usize,
    shortage: Backoff,
    /// Back-off after the device had no memory for a result that was to stay on it.
    shortage_for_results: Backoff,
    is_auto: bool,
    lost: Option<DeviceFault>,
}

impl<G> Backend<G> {
    /// Makes the backend of `operation` on the devices of `placement`. If there is a GPU, `open` makes the GPU implementation.
    ///
    /// `auto` leaves work of fewer than `floor` bytes to the CPU.
    ///
    /// # Errors
    /// The error of `open`. With `auto` that error is logged instead, and the CPU does all the work.
    pub fn new<E: std::fmt::Display>(
        operation: &'static str,
        placement: &Placement,
        floor: usize,
        open: impl FnOnce(&[Gpu]) -> Result<G, E>,
    ) -> Result<Self, E> {
        let mut on_gpu = None;
        if placement.gpu().is_some() {
            match open(placement.gpus()) {
                Ok(opened) => on_gpu = Some(opened),
                Err(error) if placement.is_auto() => {
                    tracing::error!("{operation}: continues on the CPU: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            operation,
            gpu: placement.gpu().filter(|_| on_gpu.is_some()).cloned(),
            on_gpu,
            trials: placement.is_auto().then(|| Trials::new(floor)),
            least_too_large: usize::MAX,
            shortage: Backoff::default(),
            shortage_for_results: Backoff::default(),
            is_auto: placement.is_auto(),
            lost: None,
        })
    }

    /// Makes the backend of a device that was asked for by name, with an open GPU implementation, for a test.
    #[cfg(test)]
    pub(super) fn opened(operation: &'static str, on_gpu: G) -> Self {
        let none = |_: &[Gpu]| -> Result<G, std::convert::Infallible> { unreachable!("there is no device") };
        let Ok(backend) = Self::new(operation, &Placement::cpu("a test"), 0, none);
        Self {
            on_gpu: Some(on_gpu),
            ..backend
        }
    }

    /// Does work of `bytes` bytes: on the GPU if [`gpu_for_work`](Self::gpu_for_work) chooses the GPU, and on the CPU otherwise or
    /// if the GPU fails. Also returns the device that did the work.
    pub fn run<W>(&mut self, work: &mut W, cpu: &mut W::Cpu, bytes: usize, stays: bool) -> (W::Done, Device)
    where
        W: Work<Gpu = G, Fault = DeviceFault>,
    {
        if let Some(on_gpu) = self.gpu_for_work(bytes, stays) {
            match work.on_gpu(on_gpu) {
                Ok(done) => return (done, self.device()),
                Err(error) => self.failed(bytes, error),
            }
        }
        (work.on_cpu(cpu), Device::Cpu)
    }

    /// Returns the GPU implementation if it is to do work of `work` bytes; `None` if the CPU is to do the work.
    ///
    /// If the result `stays` on the device for the next operation, work of `floor` bytes or more goes to the GPU without a trial.
    /// The times of this operation would not show what the next operation saves.
    pub fn gpu_for_work(&mut self, work: usize, stays: bool) -> Option<&mut G> {
        self.end_shortage();
        let is_wanted = self.trials.as_ref().is_none_or(|trials| match stays {
            true => work >= trials.floor,
            false => trials.wants_gpu(work),
        });
        self.on_gpu
            .as_mut()
            .filter(|_| is_wanted && work < self.least_too_large)
    }

    /// Begins the trials anew at the first call after a back-off for lack of memory has ended.
    fn end_shortage(&mut self) {
        if self.on_gpu.is_some() && self.shortage.ends(Instant::now) {
            self.least_too_large = usize::MAX;
            if let Some(trials) = &mut self.trials {
                *trials = Trials::new(trials.floor);
            }
            tracing::info!(
                "{}: {} is tried again with work that did not fit its memory",
                self.operation,
                self.device()
            );
        }
    }

    /// The device in whose memory inputs may lie; `None` without a device, or while the device is short of memory.
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.gpu().filter(|_| !self.shortage.is_on(Instant::now))
    }

    /// Returns the GPU implementation for an input that lies in its device's memory; `None` while the device is short of memory.
    pub(super) fn gpu_for_input(&mut self) -> Option<&mut G> {
        self.end_shortage();
        let is_short = self.shortage.is_on(Instant::now);
        self.on_gpu.as_mut().filter(|_| !is_short)
    }

    /// The device on which results may stay for the next operation; `None` while the device is short of memory for results.
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        if self.on_gpu.is_some() && self.shortage_for_results.ends(Instant::now) {
            tracing::info!("{}: results stay on {} again", self.operation, self.device());
        }
        let is_short = self.shortage_for_results.is_on(Instant::now);
        self.gpu().filter(|_| !is_short)
    }

    /// Reports that the device had no memory to keep a result for the next operation. Results go through the host until the
    /// back-off ends.
    pub fn failed_to_hand_on(&mut self, error: &DeviceFault) {
        let seconds = self.shortage_for_results.begins(Instant::now()).as_secs();
        tracing::error!(
            "{}: results go through the host, not {}, for {seconds} s: {error}",
            self.operation,
            self.device()
        );
    }

    /// Returns the GPU implementation, whatever the size of the work, for data that are on its device already; `None` without a
    /// usable device.
    pub fn on_gpu(&mut self) -> Option<&mut G> {
        self.on_gpu.as_mut()
    }

    /// The device of the GPU implementation; `None` without a GPU, or after a failure other than a lack of memory.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref().filter(|_| self.on_gpu.is_some())
    }

    /// The device of the GPU implementation; the CPU if no GPU can be used.
    pub fn device(&self) -> Device {
        match self.gpu() {
            Some(gpu) => gpu.device(),
            None => Device::Cpu,
        }
    }

    /// Adds the time that work of `work` bytes took on the device `on` to the trials of `auto`. Logs the choice for this size once
    /// both the CPU and the GPU have been timed often enough.
    pub fn took(&mut self, work: usize, on: Device, time: Duration) {
        if let (Some(trials), true) = (&mut self.trials, self.on_gpu.is_some())
            && let Some((cpu, on_gpu)) = trials.add(work, on, time)
        {
            let device = self.device();
            let better = if on_gpu < cpu { device } else { Device::Cpu };
            tracing::info!(
                "{}: about {} KiB at a time take {:.0} us on {device} and {:.0} us on the CPU: {better} from now on",
                self.operation,
                (1 << work.ilog2()) >> 10,
                on_gpu.as_secs_f64() * 1e6,
                cpu.as_secs_f64() * 1e6,
            );
        }
    }

    /// Reports that the GPU implementation failed on work of `work` bytes; 0 stands for work on an input, and counts as work of
    /// every size. The CPU has to do the work again.
    ///
    /// If memory was lacking, work of this size and more goes to the CPU during a back-off, and so does every input in the device's
    /// memory. After any other failure the GPU implementation is dropped.
    pub fn failed(&mut self, work: usize, error: DeviceFault) {
        if error.is_memory() {
            self.least_too_large = self.least_too_large.min(work);
            let seconds = self.shortage.begins(Instant::now()).as_secs_f64();
            let what = match work {
                0 => "all work".to_owned(),
                _ => format!("work of {work} bytes and more"),
            };
            tracing::error!("{}: {what} goes to the CPU for {seconds:.0} s: {error}", self.operation);
            return;
        }
        self.on_gpu = None;
        if self.is_auto {
            tracing::error!("{}: continues on the CPU until a restart: {error}", self.operation);
        } else {
            self.lost = Some(error);
        }
    }

    /// True if a device that was asked for by name has failed, and [`take_lost`](Self::take_lost) has not returned its fault yet.
    /// The operation must not go on.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Returns, once, the fault of a failed device that was asked for by name: the operation must not go on. `None` otherwise.
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.lost.take()
    }
}

/// Exponential back-off: the time for which a device that ran out of memory is not asked for memory again.
#[derive(Default)]
struct Backoff {
    until: Option<Instant>,
    lasts: Duration,
    is_on: bool,
}

impl Backoff {
    /// Begins a back-off after a lack of memory, unless one lasts already. Returns the time until its end.
    fn begins(&mut self, now: Instant) -> Duration {
        if let Some(until) = self.until.filter(|&until| self.is_on && now < until) {
            return until - now;
        }
        let comes_back = self.until.is_some_and(|until| now < until + self.lasts);
        self.lasts = match comes_back {
            true => (2 * self.lasts).min(LONGEST_RETRY),
            false => FIRST_RETRY,
        };
        self.until = Some(now + self.lasts);
        self.is_on = true;
        self.lasts
    }

    /// True while the back-off lasts. The clock is read only if a back-off has begun.
    fn is_on(&self, now: impl FnOnce() -> Instant) -> bool {
        self.is_on && self.until.is_some_and(|until| now() < until)
    }

    /// True once, at the first call after the end of the back-off.
    fn ends(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let ends = self.is_on && !self.is_on(now);
        self.is_on &= !ends;
        ends
    }
}

/// Times of both implementations for each size of work, by powers of two. Both are timed a few times; the faster one does the rest
/// of the work.
struct Trials {
    floor: usize,
    sizes: [Size; usize::BITS as usize],
}

/// Number of runs on the CPU that are timed for each size of work; on a GPU `GPU_TRIALS`. The shortest run counts. The first run on
/// a GPU does not count, since it loads the kernels.
const CPU_TRIALS: u8 = 3;
const GPU_TRIALS: u8 = 4;

#[derive(Clone, Copy)]
struct Size {
    cpu: (u8, Duration),
    on_gpu: (u8, Duration),
}

impl Trials {
    fn new(floor: usize) -> Self {
        let untried = (0, Duration::MAX);
        Self {
            floor: floor.max(1),
            sizes: [Size {
                cpu: untried,
                on_gpu: untried,
            }; usize::BITS as usize],
        }
    }

    fn wants_gpu(&self, work: usize) -> bool {
        if work < self.floor {
            return false;
        }
        let Size { cpu, on_gpu } = self.sizes[work.ilog2() as usize];
        match (cpu.0 < CPU_TRIALS, on_gpu.0 < GPU_TRIALS) {
            (_, true) => true,
            (true, false) => false,
            (false, false) => on_gpu.1 < cpu.1,
        }
    }

    /// Adds the `time` that work of `work` bytes took on the device `on`. The call that completes the trials of this size returns
    /// the smallest time of the CPU and of the GPU; every other call returns `None`.
    fn add(&mut self, work: usize, on: Device, time: Duration) -> Option<(Duration, Duration)> {
        if work < self.floor {
            return None;
        }
        let size = &mut self.sizes[work.ilog2() as usize];
        let decided = |size: &Size| size.cpu.0 >= CPU_TRIALS && size.on_gpu.0 >= GPU_TRIALS;
        if decided(size) {
            return None;
        }
        let (count, best) = match on {
            Device::Cpu => &mut size.cpu,
            Device::Gpu(..) => &mut size.on_gpu,
        };
        *count += 1;
        if on == Device::Cpu || *count > 1 {
            *best = time.min(*best);
        }
        decided(size).then_some((size.cpu.1, size.on_gpu.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Kind;

    const FLOOR: usize = 1 << 10;

    /// Simulates trials of work of `work` bytes until the faster device is known. Returns how often the CPU and the GPU were
    /// chosen.
    fn decide(trials: &mut Trials, work: usize, cpu_us: u64, gpu_us: u64) -> (u32, u32) {
        let mut taken = (0, 0);
        loop {
            let on = if trials.wants_gpu(work) {
                taken.1 += 1;
                (Device::Gpu(Kind::Cuda, 0), gpu_us)
            } else {
                taken.0 += 1;
                (Device::Cpu, cpu_us)
            };
            if trials.add(work, on.0, Duration::from_micros(on.1)).is_some() {
                return taken;
            }
        }
    }

    #[test]
    fn small_work_is_never_tried_on_a_device() {
        let trials = Trials::new(FLOOR);
        assert!(!trials.wants_gpu(0));
        assert!(!trials.wants_gpu(FLOOR - 1));
        assert!(trials.wants_gpu(FLOOR));
    }

    #[test]
    fn each_size_goes_to_where_it_was_quicker() {
        let mut trials = Trials::new(FLOOR);
        assert_eq!(decide(&mut trials, FLOOR, 10, 20), (3, 4));
        decide(&mut trials, FLOOR * 16, 200, 30);
        assert!(!trials.wants_gpu(FLOOR + 1));
        assert!(trials.wants_gpu(FLOOR * 16 + 1));
    }

    #[test]
    fn the_first_time_on_a_device_does_not_count() {
        let mut trials = Trials::new(FLOOR);
        trials.add(FLOOR, Device::Gpu(Kind::Cuda, 0), Duration::from_secs(1));
        for _ in 1..GPU_TRIALS {
            trials.add(FLOOR, Device::Gpu(Kind::Cuda, 0), Duration::from_micros(5));
        }
        for _ in 1..CPU_TRIALS {
            assert_eq!(trials.add(FLOOR, Device::Cpu, Duration::from_micros(9)), None);
        }
        let best = trials.add(FLOOR, Device::Cpu, Duration::from_micros(8));
        assert_eq!(best, Some((Duration::from_micros(8), Duration::from_micros(5))));
    }

    #[test]
    fn a_back_off_ends_and_is_longer_each_time_that_it_begins_again() {
        let mut shortage = Backoff::default();
        let mut now = Instant::now();
        assert!(!shortage.is_on(|| unreachable!("the clock is not read")));
        assert!(!shortage.ends(|| unreachable!("the clock is not read")));
        for seconds in [10, 20, 40, 80, 160, 320, 320] {
            let lasts = Duration::from_secs(seconds);
            assert_eq!(shortage.begins(now), lasts);
            let before = now + lasts - Duration::from_secs(1);
            assert!(shortage.is_on(|| before) && !shortage.ends(|| before));
            // Smaller work that fails meanwhile changes nothing.
            assert_eq!(shortage.begins(before), Duration::from_secs(1));
            now += lasts;
            assert!(!shortage.is_on(|| now));
            assert!(shortage.ends(|| now) && !shortage.ends(|| now));
        }
        // Memory sufficed for as long as the last back-off, so the next is as short as the first.
        assert_eq!(shortage.begins(now + LONGEST_RETRY), FIRST_RETRY);
    }

    #[test]
    fn without_a_device_there_is_nothing_to_choose() {
        let placement = Placement::cpu("asked for");
        let backend = Backend::new("test", &placement, FLOOR, |_| -> Result<(), DeviceFault> {
            unreachable!("there is no device")
        });
        let mut backend = backend.unwrap();
        assert!(backend.gpu_for_work(usize::MAX, false).is_none());
        assert_eq!(backend.device(), Device::Cpu);
    }
}
