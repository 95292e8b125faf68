//! Chooses between the two implementations of an operation, message by message.
//!
//! `auto` explores, then commits: for each size of work, by powers of two, both implementations are timed a few times, and the
//! faster one does the rest. A device that ran out of memory is left alone for a time that grows exponentially.

use super::gpu::{DeviceFault, Gpu};
use super::{Device, Placement};
use std::time::{Duration, Instant};

/// Time for which a device that ran out of memory is left alone at first.
pub const FIRST_RETRY: Duration = Duration::from_secs(10);

/// Longest time for which a device that ran out of memory is left alone. The time doubles if memory is lacking again soon after.
pub const LONGEST_RETRY: Duration = Duration::from_secs(320);

/// A piece of an operation's work, which the CPU's implementation and the GPU's do with the same bits.
pub trait Work {
    /// The CPU's implementation.
    type Cpu;
    /// The GPU's implementation.
    type Gpu;
    /// Result of either implementation.
    type Done;
    /// Failure of the GPU's implementation.
    type Fault;

    /// Does the work on the CPU.
    fn on_cpu(&mut self, cpu: &mut Self::Cpu) -> Self::Done;

    /// Does the work on a GPU.
    ///
    /// # Errors
    /// The device's error. The work can be done on the CPU then.
    fn on_gpu(&mut self, gpu: &mut Self::Gpu) -> Result<Self::Done, Self::Fault>;
}

/// The GPU implementation `G` of an operation, beside the CPU's, which is always there.
///
/// Both give the same values, so `auto` goes by time alone: it times both on each size of work. Work below a
/// floor goes to the CPU without a trial, since a launch alone takes longer.
///
/// If the device runs out of memory, work of that size and more goes to the CPU for [`FIRST_RETRY`]. The time doubles each time
/// that this happens again, up to [`LONGEST_RETRY`]. After that time the trials begin anew. After any other failure of the device,
/// `auto` stays on the CPU; a device that was asked for by name is [lost](Self::take_lost).
pub struct Backend<G> {
    operation: &'static str,
    on_gpu: Option<G>,
    gpu: Option<Gpu>,
    /// Measured times, with `auto` only.
    trials: Option<Trials>,
    /// Least size of work that did not fit the device's memory.
    least_too_large: usize,
    shortage: Backoff,
    /// Back-off after a lack of memory for results that stay on the device.
    shortage_for_results: Backoff,
    is_auto: bool,
    lost: Option<DeviceFault>,
}

impl<G> Backend<G> {
    /// The backend of an operation on the devices of `placement`, where `open` makes the GPU implementation.
    ///
    /// `auto` leaves work of fewer than `floor` bytes to the CPU.
    ///
    /// # Errors
    /// The error of `open`, unless the choice is `auto`: the CPU then does all the work.
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

    /// The backend of a device that was asked for by name, with an open GPU implementation.
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

    /// The GPU implementation, if it is to do work of `work` bytes.
    ///
    /// If the result `stays` on the device for the next operation, work of the floor's size and more goes there without a trial.
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

    /// Begins the trials anew once a shortage of memory is over.
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

    /// The device in whose memory inputs may lie; `None` while it is short of memory.
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.gpu().filter(|_| !self.shortage.is_on(Instant::now))
    }

    /// The GPU implementation, for an input in the memory of its device; `None` while the device is short of memory.
    pub(super) fn gpu_for_input(&mut self) -> Option<&mut G> {
        self.end_shortage();
        let is_short = self.shortage.is_on(Instant::now);
        self.on_gpu.as_mut().filter(|_| !is_short)
    }

    /// The device on which results may stay for the next operation; `None` while it is short of memory for them.
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        if self.on_gpu.is_some() && self.shortage_for_results.ends(Instant::now) {
            tracing::info!("{}: results stay on {} again", self.operation, self.device());
        }
        let is_short = self.shortage_for_results.is_on(Instant::now);
        self.gpu().filter(|_| !is_short)
    }

    /// Reports that there was no memory for a result that was to stay on the device. Results go through the host for a while.
    pub fn failed_to_hand_on(&mut self, error: &DeviceFault) {
        let seconds = self.shortage_for_results.begins(Instant::now()).as_secs();
        tracing::error!(
            "{}: results go through the host, not {}, for {seconds} s: {error}",
            self.operation,
            self.device()
        );
    }

    /// The GPU implementation, whatever the work, for data that are on its device already.
    pub fn on_gpu(&mut self) -> Option<&mut G> {
        self.on_gpu.as_mut()
    }

    /// The device of the GPU implementation, as long as it can be used.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref().filter(|_| self.on_gpu.is_some())
    }

    /// The device of the GPU implementation; the CPU where there is none.
    pub fn device(&self) -> Device {
        match self.gpu() {
            Some(gpu) => gpu.device(),
            None => Device::Cpu,
        }
    }

    /// Reports how long `work` bytes took, for the trials.
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

    /// Reports that the GPU implementation failed on `work` bytes, 0 for an input. The CPU has to do the work again.
    ///
    /// If memory was lacking, work of this size and more goes to the CPU for a while, and no input is taken on the device. After
    /// any other failure the GPU implementation is dropped.
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
            tracing::error!("{}: continues on the CPU: {error}", self.operation);
        } else {
            self.lost = Some(error);
        }
    }

    /// True if the operation must not go on: see [`take_lost`](Self::take_lost).
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// The reason why the operation must not go on, once: a device that was asked for by name is lost.
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
    /// Begins the back-off after a lack of memory; one that has begun already goes on. Returns the time that is left.
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

    /// True while the back-off lasts. The clock is read only if one has begun.
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

/// Times of both implementations for each size of work, by powers of two: both are explored, then the faster is taken.
struct Trials {
    floor: usize,
    sizes: [Size; usize::BITS as usize],
}

/// Number of times that each implementation is timed; the least time counts. On a device the first time does not count, since it
/// loads the kernels.
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

    /// Adds a time. With the last time that is needed, returns the least times of the CPU and of the GPU.
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

    /// Runs work of one size until the better side is known, and returns how often each side was taken.
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
