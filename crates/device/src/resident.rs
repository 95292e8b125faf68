//! State of an operation that may live on a device. After a failure the state comes back to the host, or the caller learns that the
//! state is lost.

use super::gpu::{DeviceFault, Gpu};
use super::{Backend, Device};
use std::time::Duration;

/// State of an operation that may live on a device, beside a host side that is always there.
///
/// The host side holds all of the state, or a part while the device holds the rest. Work that moves state to the device notes this
/// on the host side.
pub trait State {
    /// State in host memory, with a note whether the device holds more.
    type Host;

    /// True if the device holds state that `host` lacks.
    fn is_on_device(host: &Self::Host) -> bool;

    /// Moves the state that only the device holds back to `host`, and frees the device's memory. Afterwards the device holds
    /// nothing, even after an error.
    ///
    /// # Errors
    /// Returns the device's fault. State that did not come back is lost, and [`is_on_device`](Self::is_on_device) stays true
    /// until the host side begins anew.
    fn bring_back(&mut self, host: &mut Self::Host) -> Result<(), DeviceFault>;
}

/// Outcome of work that a device was to do on its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after `FellBack` and `Reset` the work is still to be done"]
pub enum Outcome<T> {
    /// The device did the work.
    Done(T),
    /// The host still has to do the work, and holds all of the state: the device was not chosen, or it failed and the state came
    /// back.
    FellBack,
    /// The host still has to do the work, and the state that only the device held is lost. The host side has to begin anew first,
    /// and the user has to be told.
    Reset,
}

/// State `S` of an operation that a device may hold, with the choice of the device.
///
/// State moves to the device with an input that lies on the device, by the work that [takes](Self::take_input) the input. From then
/// on the state stays on the device, and so does all work on it, however small. Only work on state that the host holds goes to the
/// quicker side. If the device fails, the state comes back to the host or is lost, and every caller has to handle both.
///
/// Work that returns a fault must have left the state as it was, since the host does the work again. If a part of the work may be
/// done by then, it has to keep what `bring_back` needs to undo that part.
///
/// A fault is logged. If the device was asked for by name, the operation ends after any fault but a lack of memory:
/// [`take_lost`](Self::take_lost) returns the fault. The outcome is the same as with `auto`.
///
/// ```
/// use robocache_device::gpu::DeviceFault;
/// use robocache_device::{Backend, Outcome, Placement, Resident, State};
///
/// /// A sum, which the device adds to.
/// struct Sum(u64);
/// #[derive(Default)]
/// struct HostSum {
///     sum: u64,
///     is_on_device: bool,
/// }
///
/// impl State for Sum {
///     type Host = HostSum;
///
///     fn is_on_device(host: &HostSum) -> bool {
///         host.is_on_device
///     }
///
///     fn bring_back(&mut self, host: &mut HostSum) -> Result<(), DeviceFault> {
///         host.sum += std::mem::take(&mut self.0);
///         host.is_on_device = false;
///         Ok(())
///     }
/// }
///
/// let placement = Placement::cpu("an example");
/// let mut resident = Resident::new(Backend::new("sum", &placement, 0, |_| Ok::<_, DeviceFault>(Sum(0)))?);
/// let mut host = HostSum::default();
/// let added = resident.take_input(&mut host, |device, host| {
///     device.0 += 5;
///     host.is_on_device = true;
///     Ok(())
/// });
/// match added {
///     Outcome::Done(()) => {}
///     Outcome::FellBack => host.sum += 5,
///     Outcome::Reset => host = HostSum { sum: 5, ..HostSum::default() },
/// }
/// assert_eq!(host.sum, 5);
/// # Ok::<(), DeviceFault>(())
/// ```
pub struct Resident<S> {
    backend: Backend<S>,
}

impl<S: State> Resident<S> {
    /// Wraps a backend whose GPU implementation holds the state.
    pub fn new(backend: Backend<S>) -> Self {
        Self { backend }
    }

    /// Runs `work` for an input that lies in the device's memory; `work` may move the state to the device. While the device is
    /// short of memory and holds no state, returns [`Outcome::FellBack`]: the host has to do the work.
    pub fn take_input<T>(
        &mut self,
        host: &mut S::Host,
        work: impl FnOnce(&mut S, &mut S::Host) -> Result<T, DeviceFault>,
    ) -> Outcome<T> {
        let state = match self.is_on_device(host) {
            true => self.backend.on_gpu(),
            false => self.backend.gpu_for_input(),
        };
        let done = state.map(|state| work(state, host));
        self.outcome(host, 0, done)
    }

    /// Runs `work` for an input in host memory if the device holds any of the state. Otherwise the host has to do the work.
    pub fn update<T>(
        &mut self,
        host: &mut S::Host,
        work: impl FnOnce(&mut S, &mut S::Host) -> Result<T, DeviceFault>,
    ) -> Outcome<T> {
        let state = self.backend.on_gpu().filter(|_| S::is_on_device(host));
        let done = state.map(|state| work(state, host));
        self.outcome(host, 0, done)
    }

    /// Runs `work` of `bytes` bytes if the device holds any of the state, or else if the device is the quicker side. If `stays`,
    /// the result is wanted on the device. `work` must not move the state. The caller reports the time by [`took`](Self::took).
    pub fn compute<T>(
        &mut self,
        host: &mut S::Host,
        bytes: usize,
        stays: bool,
        work: impl FnOnce(&mut S, &mut S::Host) -> Result<T, DeviceFault>,
    ) -> Outcome<T> {
        let state = match self.is_on_device(host) {
            true => self.backend.on_gpu(),
            false => self.backend.gpu_for_work(bytes, stays),
        };
        let done = state.map(|state| work(state, host));
        self.outcome(host, bytes, done)
    }

    fn outcome<T>(&mut self, host: &mut S::Host, bytes: usize, done: Option<Result<T, DeviceFault>>) -> Outcome<T> {
        match done {
            Some(Ok(done)) => Outcome::Done(done),
            Some(Err(fault)) => self.failed(host, bytes, fault),
            None => Self::left(host),
        }
    }

    fn is_on_device(&mut self, host: &S::Host) -> bool {
        self.backend.on_gpu().is_some() && S::is_on_device(host)
    }

    /// Returns the outcome of work that the device did not do: `Reset` if only the device held some of the state, else `FellBack`.
    fn left<T>(host: &S::Host) -> Outcome<T> {
        match S::is_on_device(host) {
            true => Outcome::Reset,
            false => Outcome::FellBack,
        }
    }

    /// Reports a fault of the device outside of `take_input`, `update` and `compute`, as when a result could not be handed on. The
    /// work had `bytes` bytes; 0 stands for work on an input. Never returns [`Outcome::Done`].
    pub fn failed<T>(&mut self, host: &mut S::Host, bytes: usize, fault: DeviceFault) -> Outcome<T> {
        // The backend has not yet given up a device that failed for good: its memory may still be readable.
        let brought_back = self.backend.on_gpu().map_or(Ok(()), |state| state.bring_back(host));
        let is_memory = fault.is_memory();
        self.backend.failed(bytes, fault);
        match brought_back {
            Ok(()) => {}
            // The first fault is the reason, unless the device could have gone on after it.
            Err(fault) if is_memory => self.backend.failed(bytes, fault),
            Err(fault) => tracing::error!("{}: the state on the device is lost: {fault}", self.backend.operation),
        }
        Self::left(host)
    }

    /// Returns the device's part of the state, from which the results of the last work can be read; `None` without a usable device.
    pub fn on_gpu(&mut self) -> Option<&mut S> {
        self.backend.on_gpu()
    }

    /// Returns the device that may hold the state; the CPU if no GPU can be used.
    pub fn device(&self) -> Device {
        self.backend.device()
    }

    /// Returns the device in whose memory inputs may lie: [`Backend::input_gpu`].
    pub fn input_gpu(&self) -> Option<&Gpu> {
        self.backend.input_gpu()
    }

    /// Returns the device on which results may stay: [`Backend::output_gpu`].
    pub fn output_gpu(&mut self) -> Option<&Gpu> {
        self.backend.output_gpu()
    }

    /// Adds the time of work of `bytes` bytes to the trials of `auto`: [`Backend::took`].
    pub fn took(&mut self, bytes: usize, on: Device, time: Duration) {
        self.backend.took(bytes, on, time);
    }

    /// True if a device that was asked for by name has failed: [`Backend::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.backend.is_lost()
    }

    /// Returns, once, the fault that ends the operation: [`Backend::take_lost`].
    pub fn take_lost(&mut self) -> Option<DeviceFault> {
        self.backend.take_lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::SliceError;

    /// Numbers on a device. If `unreadable` is set, bringing them back fails with this fault.
    struct Numbers {
        held: Vec<u32>,
        unreadable: Option<DeviceFault>,
    }

    #[derive(Default)]
    struct HostNumbers {
        held: Vec<u32>,
        is_on_device: bool,
    }

    impl State for Numbers {
        type Host = HostNumbers;

        fn is_on_device(host: &HostNumbers) -> bool {
            host.is_on_device
        }

        fn bring_back(&mut self, host: &mut HostNumbers) -> Result<(), DeviceFault> {
            let held = std::mem::take(&mut self.held);
            self.unreadable.take().map_or(Ok(()), Err)?;
            host.held.splice(0..0, held);
            host.is_on_device = false;
            Ok(())
        }
    }

    fn shortage(bytes: usize) -> DeviceFault {
        DeviceFault::OutOfMemory {
            device: Device::Cpu,
            kind: "device",
            bytes,
        }
    }

    fn end(len: usize) -> DeviceFault {
        DeviceFault::Slice(SliceError::Len {
            tensor: "a test's",
            expected: 0,
            came: len,
        })
    }

    /// Puts two numbers on a device that was asked for by name. If `unreadable` is set, bringing them back fails.
    fn two(unreadable: Option<DeviceFault>) -> (Resident<Numbers>, HostNumbers) {
        let held = Vec::new();
        let mut resident = Resident::new(Backend::opened("test", Numbers { held, unreadable }));
        let mut host = HostNumbers::default();
        for number in [1, 2] {
            let took = resident.take_input(&mut host, |device, host| {
                host.is_on_device = true;
                device.held.push(number);
                Ok(())
            });
            assert_eq!(took, Outcome::Done(()));
        }
        (resident, host)
    }

    #[test]
    fn state_on_a_device_is_worked_on_there_however_small_the_work() {
        let (mut resident, mut host) = two(None);
        let sum = |device: &mut Numbers, _: &mut _| Ok(device.held.iter().sum::<u32>());
        assert_eq!(resident.compute(&mut host, 1, false, sum), Outcome::Done(3));
        assert_eq!(resident.update(&mut host, sum), Outcome::Done(3));
    }

    #[test]
    fn state_on_the_host_is_updated_there() {
        let (mut resident, _) = two(None);
        let mut host = HostNumbers::default();
        let updated = resident.update(&mut host, |_, _| -> Result<(), _> {
            unreachable!("nothing is on the device")
        });
        assert_eq!(updated, Outcome::FellBack);
    }

    /// Faults of each kind, with readable and unreadable memory: the outcome, and the fault that ends the operation.
    #[test]
    fn a_failure_brings_the_state_back_or_says_that_it_is_lost() {
        let cases = [
            (shortage(8), None, Outcome::FellBack, None),
            (shortage(8), Some(shortage(9)), Outcome::Reset, None),
            (shortage(8), Some(end(9)), Outcome::Reset, Some(end(9))),
            (end(8), None, Outcome::FellBack, Some(end(8))),
            (end(8), Some(shortage(9)), Outcome::Reset, Some(end(8))),
            (end(8), Some(end(9)), Outcome::Reset, Some(end(8))),
        ];
        for (fault, unreadable, outcome, lost) in cases {
            let (mut resident, mut host) = two(unreadable);
            let came = resident.update(&mut host, |_, _| -> Result<(), _> { Err(fault.clone()) });
            assert_eq!(came, outcome, "{fault}");
            let held: &[u32] = if outcome == Outcome::FellBack { &[1, 2] } else { &[] };
            assert_eq!(host.held, held, "{fault}");
            assert_eq!(resident.take_lost(), lost, "{fault}");
        }
    }

    #[test]
    fn state_of_a_device_that_is_gone_is_lost_until_the_host_begins_anew() {
        let (mut resident, mut host) = two(Some(end(9)));
        let fails = |_: &mut _, _: &mut _| -> Result<(), _> { Err(end(8)) };
        assert_eq!(resident.update(&mut host, fails), Outcome::Reset);
        // The caller ignores the loss.
        let none = |_: &mut _, _: &mut _| -> Result<(), _> { unreachable!("the device is gone") };
        assert_eq!(resident.update(&mut host, none), Outcome::Reset);
        assert_eq!(resident.take_input(&mut host, none), Outcome::Reset);
        assert_eq!(resident.compute(&mut host, 1, true, none), Outcome::Reset);
        host = HostNumbers::default();
        assert_eq!(resident.compute(&mut host, 1, true, none), Outcome::FellBack);
    }

    #[test]
    fn an_input_is_the_hosts_while_the_device_is_short_of_memory() {
        let (mut resident, mut host) = two(None);
        let came = resident.take_input(&mut host, |_, _| -> Result<(), _> { Err(shortage(8)) });
        assert_eq!(came, Outcome::FellBack);
        let came = resident.take_input(&mut host, |_, _| -> Result<(), _> {
            unreachable!("it is short of memory")
        });
        assert_eq!(came, Outcome::FellBack);
    }
}
