//! Finds AMD's library, and looks up the table of its functions. All functions are found before any function of the table is
//! called.

use super::super::{Fault, Kind, Unavailable};
use super::Hip;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::{Mutex, OnceLock};

/// HIP 6.4, the first version that loads images of a whole family of GPUs.
const NEEDED: i32 = 60_400_000;

/// The library's names, the newest first: the major version is part of the name.
const LIBRARIES: [&str; 3] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"];

/// Codes of `hipErrorNoDevice` and `hipErrorInvalidDevice`: HIP's initialization returns either of them if there is no device.
const NO_DEVICE: [c_int; 2] = [100, 101];

const OUT_OF_MEMORY: c_int = 2;

/// Driver functions that wait for work, or ask if it is done.
const WAITS: [&str; 3] = ["hipStreamSynchronize", "hipEventSynchronize", "hipEventQuery"];

/// Declares the table of functions by their names in the library.
macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        /// Table of the functions of AMD's library, which stays loaded. All functions are found before any is called.
        #[expect(non_snake_case, reason = "the library's names")]
        pub(super) struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> c_int,)*
            hipGetErrorName: unsafe extern "C" fn(c_int) -> *const c_char,
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, Unavailable> {
                Ok(Self {
                    $($name: find(&library, stringify!($name))?,)*
                    hipGetErrorName: find(&library, "hipGetErrorName")?,
                    _library: library,
                })
            }
        }
    };
}

functions! {
    hipDeviceGetAttribute(*mut c_int, c_int, c_int);
    hipDeviceGetName(*mut c_char, c_int, c_int);
    hipDeviceGetUuid(*mut [u8; 16], c_int);
    hipDeviceSynchronize();
    hipDrvPointerGetAttributes(c_uint, *mut c_int, *mut *mut c_void, *mut c_void);
    hipEventCreateWithFlags(*mut *mut c_void, c_uint);
    hipEventDestroy(*mut c_void);
    hipEventElapsedTime(*mut f32, *mut c_void, *mut c_void);
    hipEventQuery(*mut c_void);
    hipEventRecord(*mut c_void, *mut c_void);
    hipEventSynchronize(*mut c_void);
    hipFree(*mut c_void);
    hipGetDeviceCount(*mut c_int);
    hipGraphDestroy(*mut c_void);
    hipGraphExecDestroy(*mut c_void);
    hipGraphInstantiateWithFlags(*mut *mut c_void, *mut c_void, c_ulonglong);
    hipGraphLaunch(*mut c_void, *mut c_void);
    hipHostFree(*mut c_void);
    hipHostMalloc(*mut *mut c_void, usize, c_uint);
    hipHostRegister(*mut c_void, usize, c_uint);
    hipHostUnregister(*mut c_void);
    hipInit(c_uint);
    hipMalloc(*mut *mut c_void, usize);
    hipMemcpyDtoDAsync(*mut c_void, *mut c_void, usize, *mut c_void);
    hipMemcpyDtoHAsync(*mut c_void, *mut c_void, usize, *mut c_void);
    hipMemcpyHtoDAsync(*mut c_void, *const c_void, usize, *mut c_void);
    hipMemcpyPeerAsync(*mut c_void, c_int, *const c_void, c_int, usize, *mut c_void);
    hipMemsetD8Async(*mut c_void, u8, usize, *mut c_void);
    hipModuleGetFunction(*mut *mut c_void, *mut c_void, *const c_char);
    hipModuleLaunchKernel(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
        *mut *mut c_void, *mut *mut c_void);
    hipModuleLoadData(*mut *mut c_void, *const c_void);
    hipModuleUnload(*mut c_void);
    hipSetDevice(c_int);
    hipStreamBeginCapture(*mut c_void, c_int);
    hipStreamCreateWithFlags(*mut *mut c_void, c_uint);
    hipStreamDestroy(*mut c_void);
    hipStreamEndCapture(*mut c_void, *mut *mut c_void);
    hipStreamSynchronize(*mut c_void);
    hipStreamWaitEvent(*mut c_void, *mut c_void, c_uint);
    hipThreadExchangeStreamCaptureMode(*mut c_int);
}

/// Looks up the function `name` of the library, as the function pointer type `F`.
fn find<F: Copy>(library: &Library, name: &'static str) -> Result<F, Unavailable> {
    // SAFETY: `F` is the type of this function in HIP's header; the table keeps the library loaded.
    let found = unsafe { library.get::<F>(name) };
    found
        .map(|function| *function)
        .map_err(|_| Unavailable::MissingSymbol(Kind::Hip, name))
}

impl Functions {
    /// Checks the code that a call returned.
    ///
    /// # Errors
    /// The error, by its name and number.
    pub(super) fn check(&self, call: &'static str, code: c_int) -> Result<(), Fault> {
        if code == 0 {
            return Ok(());
        }
        Err(Fault {
            call,
            name: self.error_name(code),
            code: code as u32,
            // A launch or a copy that was refused has done nothing. A wait reports errors of work that was under way.
            is_memory: code == OUT_OF_MEMORY && !WAITS.contains(&call),
        })
    }

    fn error_name(&self, code: c_int) -> String {
        // SAFETY: every number has a name, which lives as long as the library; null is looked for.
        let name = unsafe { (self.hipGetErrorName)(code) };
        if name.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: the name is a text that ends with 0.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// Returns AMD's driver, which is loaded at the first call in a process and stays loaded.
pub(crate) fn driver() -> Result<&'static Hip, Unavailable> {
    static DRIVER: OnceLock<Result<Hip, Unavailable>> = OnceLock::new();
    DRIVER.get_or_init(probe).as_ref().map_err(Clone::clone)
}

fn probe() -> Result<Hip, Unavailable> {
    // SAFETY: loading the driver's library runs its initializers, which is what it is installed for.
    let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
    let library = library.ok_or(Unavailable::NoLibrary(Kind::Hip))?;
    // The version comes first: it says more about an old driver than the name of a missing function.
    let version_of = find::<unsafe extern "C" fn(*mut c_int) -> c_int>(&library, "hipDriverGetVersion")?;
    let mut version = 0;
    // SAFETY: the function writes the version.
    let asked = unsafe { version_of(&mut version) };
    if asked == 0 && version < NEEDED {
        return Err(Unavailable::DriverTooOld {
            kind: Kind::Hip,
            came: version,
            needed: NEEDED,
        });
    }
    let functions = Functions::of(library)?;
    let failed = |code| match NO_DEVICE.contains(&code) {
        true => Unavailable::NoDevice(Kind::Hip),
        false => Unavailable::Init {
            kind: Kind::Hip,
            name: functions.error_name(code),
            code: code as u32,
        },
    };
    let ok = |code| if code == 0 { Ok(()) } else { Err(failed(code)) };
    ok(asked)?;
    let mut devices = 0;
    // SAFETY: the functions are there, and one of them writes the count.
    unsafe {
        ok((functions.hipInit)(0))?;
        ok((functions.hipGetDeviceCount)(&mut devices))?;
    }
    match devices {
        ..=0 => Err(Unavailable::NoDevice(Kind::Hip)),
        devices => Ok(Hip {
            functions,
            version,
            devices: devices as usize,
            images: Mutex::default(),
        }),
    }
}
