//! Events: points in the stream of a device. Every call first makes the stream's context current in the calling thread.

use super::driver;
use super::error::DeviceFault;
use super::stream::Stream;
use std::sync::Arc;

/// Point in the work of a device's stream, to wait for or to measure times from.
pub struct Event {
    stream: Arc<Stream>,
    event: driver::Event,
}

impl Event {
    /// Makes an event of `stream`. An event that is not `timed` costs less, but measures no times.
    pub(super) fn new(stream: &Arc<Stream>, timed: bool) -> Result<Self, DeviceFault> {
        let (driver, _) = stream.bound()?;
        // SAFETY: the context is current.
        let event = unsafe { driver.create_event(timed) }.map_err(|fault| stream.failed(fault, "an event"))?;
        Ok(Self {
            stream: stream.clone(),
            event,
        })
    }

    /// Sets the event to the end of the stream: it is reached once all work enqueued so far is done.
    ///
    /// # Errors
    /// The driver's error.
    pub fn record(&self) -> Result<(), DeviceFault> {
        let (driver, stream) = self.stream.bound()?;
        // SAFETY: event and stream live as long as `self`.
        unsafe { driver.record(self.event, stream) }.map_err(|fault| self.stream.failed(fault, "an event"))
    }

    /// Sets the event to the end of the legacy default stream or, if `of_thread`, of the default stream of the calling thread.
    ///
    /// # Errors
    /// The driver's error.
    pub fn record_in_default(&self, of_thread: bool) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`; the default streams are always there.
        unsafe { driver.record(self.event, driver.default_stream(of_thread)) }
            .map_err(|fault| self.stream.failed(fault, "a default stream"))
    }

    /// Blocks the calling thread until the event is reached.
    ///
    /// # Errors
    /// The first error of the work before the event.
    pub fn wait(&self) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { driver.synchronize_event(self.event) }.map_err(|fault| self.stream.failed(fault, "an event"))
    }

    /// True if all work before the event is done. Does not wait.
    ///
    /// # Errors
    /// The first error of the work before the event.
    pub fn is_reached(&self) -> Result<bool, DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { driver.is_reached(self.event) }.map_err(|fault| self.stream.failed(fault, "an event"))
    }

    /// Time from the event `since` to this event, us. Both events must have been reached, and made to measure times.
    ///
    /// # Errors
    /// The driver's error.
    pub fn elapsed_us(&self, since: &Self) -> Result<f64, DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: both events live.
        let ms = unsafe { driver.elapsed_ms(since.event, self.event) };
        Ok(f64::from(ms.map_err(|fault| self.stream.failed(fault, "two events"))?) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok((driver, _)) = self.stream.bound() {
            // SAFETY: it is this event's own and is not used again. There is nobody to tell of a failure.
            let _ = unsafe { driver.destroy_event(self.event) };
        }
    }
}
