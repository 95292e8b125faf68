use super::driver;
use super::error::DeviceFault;
use super::stream::Stream;
use std::sync::Arc;

/// A point in the stream of a device.
pub struct Event {
    stream: Arc<Stream>,
    event: driver::Event,
}

impl Event {
    /// Makes an event of a stream. An event that is not `timed` costs less, but measures no times.
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

    /// Sets the event to the end of the legacy default stream, or of the default stream of the thread.
    ///
    /// # Errors
    /// The driver's error.
    pub fn record_in_default(&self, of_thread: bool) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`; the default streams are always there.
        unsafe { driver.record(self.event, driver.default_stream(of_thread)) }
            .map_err(|fault| self.stream.failed(fault, "a default stream"))
    }

    /// Waits until the event is reached.
    ///
    /// # Errors
    /// The first error of the work before it.
    pub fn wait(&self) -> Result<(), DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { driver.synchronize_event(self.event) }.map_err(|fault| self.stream.failed(fault, "an event"))
    }

    /// True if the event is reached.
    ///
    /// # Errors
    /// The first error of the work before it.
    pub fn is_reached(&self) -> Result<bool, DeviceFault> {
        let (driver, _) = self.stream.bound()?;
        // SAFETY: the event lives as long as `self`.
        unsafe { driver.is_reached(self.event) }.map_err(|fault| self.stream.failed(fault, "an event"))
    }

    /// The time between an earlier event and this one, both of which must have been reached, us.
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
