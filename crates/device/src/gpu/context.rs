//! The context of a device, with the kernels that are loaded in it. All users of the device in a process share one context. When
//! the last user drops the context, its kernels are unloaded.

use super::driver::{self, Driver, Loaded, Unavailable};
use super::error::DeviceFault;
use crate::Device;
use robocache_kernels::Kernel;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub(super) struct Context {
    pub driver: &'static dyn Driver,
    pub ordinal: usize,
    pub handle: driver::Context,
    pub name: String,
    pub multiprocessors: u32,
    modules: Mutex<Modules>,
}

#[derive(Default)]
struct Modules {
    loaded: HashMap<&'static str, driver::Module>,
    functions: HashMap<&'static str, Loaded>,
}

impl Context {
    /// Opens the context of a device, or returns the one that is open. Drivers have one context for each device in a process, so
    /// there is one `Context`, too, for as long as anybody uses it.
    pub(super) fn open(driver: &'static dyn Driver, ordinal: usize) -> Result<Arc<Self>, DeviceFault> {
        static OPEN: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
        let (kind, count) = (driver.kind(), driver.device_count());
        if ordinal >= count {
            return Err(Unavailable::NoSuchDevice { kind, ordinal, count }.into());
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|context| context.strong_count() > 0);
        // The kinds are compared, too, since drivers without fields may share an address.
        let is_drivers = |it: &dyn Driver| it.kind() == kind && std::ptr::addr_eq(it, driver);
        let is_same_device = |context: &Arc<Self>| context.ordinal == ordinal && is_drivers(context.driver);
        if let Some(context) = open.iter().filter_map(Weak::upgrade).find(is_same_device) {
            return Ok(context);
        }
        let context = Arc::new(Self::new(driver, ordinal)?);
        open.push(Arc::downgrade(&context));
        Ok(context)
    }

    fn new(driver: &'static dyn Driver, ordinal: usize) -> Result<Self, DeviceFault> {
        let device = Device::Gpu(driver.kind(), ordinal);
        let failed = |fault| DeviceFault::driver(device, fault, "the device");
        Ok(Self {
            driver,
            ordinal,
            name: driver.name(ordinal).map_err(failed)?,
            multiprocessors: driver.multiprocessors(ordinal).map_err(failed)?,
            modules: Mutex::default(),
            // Opened last, since only dropping the complete value closes it.
            handle: driver.open(ordinal).map_err(failed)?,
        })
    }

    pub(super) fn device(&self) -> Device {
        Device::Gpu(self.driver.kind(), self.ordinal)
    }

    /// Makes this the current context of the calling thread.
    pub(super) fn bind(&self) -> Result<(), DeviceFault> {
        // SAFETY: it is open as long as `self`.
        unsafe { self.driver.make_current(self.handle) }.map_err(|fault| self.failed(fault, "its context"))
    }

    pub(super) fn failed(&self, fault: driver::Fault, detail: impl ToString) -> DeviceFault {
        DeviceFault::driver(self.device(), fault, detail)
    }

    /// Checks that the driver has all functions that an optional feature needs.
    pub(super) fn check_has(&self, optional: driver::Optional) -> Result<(), DeviceFault> {
        match self.driver.missing(optional) {
            Some(missing) => Err(Unavailable::MissingSymbol(self.driver.kind(), missing).into()),
            None => Ok(()),
        }
    }

    /// Returns the driver's function of `kernel`, which is loaded at the first call. Returns an error if the parameters of the
    /// launch, `came` bytes, do not have the size of the kernel's.
    pub(super) fn function(&self, kernel: Kernel, came: usize) -> Result<Loaded, DeviceFault> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let function = match modules.functions.get(kernel.name) {
            Some(&known) => known,
            None => self.load(&mut modules, kernel)?,
        };
        match function.parameter_bytes {
            Some(expected) if expected != came => Err(DeviceFault::Parameters {
                device: self.device(),
                kernel: kernel.name,
                expected,
                came,
            }),
            _ => Ok(function),
        }
    }

    fn load(&self, modules: &mut Modules, kernel: Kernel) -> Result<Loaded, DeviceFault> {
        self.bind()?;
        let name = kernel.image.name;
        let module = match modules.loaded.get(name) {
            Some(&module) => module,
            None => {
                // SAFETY: the context is current.
                let module = unsafe { self.driver.load(&kernel.image) };
                let module = module.map_err(|fault| self.failed(fault, format_args!("the kernels of {name}")))?;
                modules.loaded.insert(name, module);
                module
            }
        };
        // SAFETY: the module was loaded above, and is unloaded with the context only.
        let function = unsafe { self.driver.function(module, kernel.name) };
        let function = function.map_err(|fault| self.failed(fault, kernel.name))?;
        modules.functions.insert(kernel.name, function);
        Ok(function)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        let modules = std::mem::take(&mut modules.loaded);
        if self.bind().is_ok() {
            for module in modules.into_values() {
                // SAFETY: nobody has the context any more, so that no function of the module can be launched.
                unsafe { self.driver.unload(module) };
            }
        }
        // SAFETY: it was opened once.
        unsafe { self.driver.close(self.ordinal) };
    }
}
