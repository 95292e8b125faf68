//! The device layer itself: memory, streams, graphs, several devices and threads, and the texts of its errors.

use super::support::{gpu, ran};
use crate::support::kind;
use robocache::device::gpu::{
    Budget, DeviceBuf, DeviceFault, DeviceSlice, Gpu, Kernel, Kind, Params, PinnedBuf, SliceError, Unavailable,
    arithmetic, device_count, images,
};
use robocache::device::{Device, Dtype, HostBuf, HostMemory};

const EMPTY: Kernel = images::EMPTY.kernel("empty");

#[repr(C)]
#[derive(Clone, Copy)]
struct EmptyParams {
    unused: u32,
}

// SAFETY: it has the one field of the kernel's struct.
unsafe impl Params for EmptyParams {}

#[repr(C)]
#[derive(Clone, Copy)]
struct OtherParams {
    one: u64,
    more: u64,
}

// SAFETY: it is not the kernel's struct, which is what the test is about: such a launch is refused.
unsafe impl Params for OtherParams {}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn buffer(gpu: &Gpu, bytes: usize) -> DeviceBuf {
    let mut buffer = DeviceBuf::new(gpu, &Budget::new(None));
    buffer.reserve(bytes).unwrap();
    buffer
}

/// Contents of a buffer on the device after all work in its stream.
fn contents(buffer: &DeviceBuf, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: `out` stays as it is until the stream has been synchronized.
    unsafe { buffer.download(0, &mut out) }.unwrap();
    buffer.gpu().synchronize().unwrap();
    out
}

#[test]
fn bytes_come_back_as_they_went() {
    let Some(gpu) = gpu() else { return };
    let bytes = pattern(70_001, 3);
    let device = buffer(&gpu, bytes.len());
    // SAFETY: the memory is not page-locked.
    unsafe { device.upload(0, &bytes) }.unwrap();
    assert_eq!(contents(&device, bytes.len()), bytes);

    device.clear(1, 100).unwrap();
    let copy = buffer(&gpu, bytes.len());
    copy.clear(0, 7).unwrap();
    gpu.synchronize().unwrap();
    copy.copy_from(7, &device, 0, 5000).unwrap();
    let came = contents(&copy, 5007);
    assert_eq!(came[7], bytes[0]);
    assert!(came[8..108].iter().all(|&byte| byte == 0));
    assert_eq!(came[108..], bytes[101..5000]);
    ran(&gpu, "device: copies", 3);
}

/// Sizes around those of a piece, of a chunk and of all chunks that copies of pageable memory go through.
const SIZES: [usize; 7] = [
    1,
    128 << 10,
    (128 << 10) + 1,
    512 << 10,
    (512 << 10) + 1,
    4 << 20,
    (9 << 20) + 7,
];

/// Makes pseudo-random bytes, so that no chunk is like another.
fn random_bytes(bytes: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn memory_that_is_not_page_locked_is_copied_whole_by_several_threads_of_a_stream() {
    let Some(gpu) = gpu() else { return };
    const GUARD: usize = 1000;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let gpu = &gpu;
            scope.spawn(move || {
                for (round, bytes) in SIZES.into_iter().enumerate() {
                    let (before, wanted) = (
                        random_bytes(bytes + 2 * GUARD, thread),
                        random_bytes(bytes, 100 * round + thread),
                    );
                    let device = buffer(gpu, before.len());
                    // SAFETY: neither is page-locked, so that both have been read on return.
                    unsafe { device.upload(0, &before) }.unwrap();
                    let mut from = wanted.clone();
                    // SAFETY: as above.
                    unsafe { device.upload(GUARD, &from) }.unwrap();
                    from.fill(0xee);
                    let mut came = vec![0x77; bytes + 2 * GUARD];
                    device.fetch(GUARD, &mut came[GUARD..][..bytes]).unwrap();
                    assert!(came[GUARD..][..bytes] == wanted, "{bytes} bytes");
                    let guards = came[..GUARD].iter().chain(&came[GUARD + bytes..]);
                    assert!(guards.into_iter().all(|&byte| byte == 0x77), "{bytes} bytes");
                    device.fetch(0, &mut came).unwrap();
                    assert!(came[..GUARD] == before[..GUARD] && came[GUARD + bytes..] == before[GUARD + bytes..]);
                }
            });
        }
    });
    ran(&gpu, "device: copies of other memory", 4 * SIZES.len());
}

#[test]
fn page_locked_memory_is_as_good_as_any() {
    let Some(gpu) = gpu() else { return };
    let mut pinned = PinnedBuf::new(&gpu);
    pinned.resize(4096).unwrap();
    pinned.bytes_mut().copy_from_slice(&pattern(4096, 9));
    let device = buffer(&gpu, 4096);
    // SAFETY: `contents` synchronizes before the memory is used again.
    unsafe { device.upload(0, pinned.bytes()) }.unwrap();
    assert_eq!(contents(&device, 4096), pattern(4096, 9));
    assert!(
        gpu.is_page_locked(pinned.bytes()) && gpu.is_page_locked(&pinned.bytes()[1000..]) && gpu.is_page_locked(&[])
    );
    assert!(!gpu.is_page_locked(&pattern(4096, 9)));
    ran(&gpu, "device: page-locked memory", 1);
}

#[test]
fn large_buffers_are_page_locked_where_their_source_is() {
    let Some(gpu) = gpu() else { return };
    for (source, is_locked) in [(HostMemory::page_locked(&gpu), true), (HostMemory::pageable(), false)] {
        let mut buffer = HostBuf::new(&source);
        buffer.copy_from(&pattern(1000, 2));
        assert!(!gpu.is_page_locked(buffer.bytes()), "it is small");
        buffer.resize(1 << 17);
        assert_eq!(gpu.is_page_locked(buffer.bytes()), is_locked);
        buffer.resize(1 << 18);
        assert_eq!(gpu.is_page_locked(buffer.bytes()), is_locked);
        assert_eq!(buffer.bytes()[..1000], pattern(1000, 2), "it keeps what is in it");
    }
    ran(&gpu, "device: sources of host memory", 2);
}

#[test]
fn a_slice_is_within_its_buffer_and_of_one_type_and_device() {
    let Some(gpu) = gpu() else { return };
    let device = buffer(&gpu, 1024);
    let slice = device.slice(8, Dtype::Float32, 100).unwrap();
    assert_eq!((slice.len(), slice.bytes(), slice.device()), (100, 400, gpu.device()));
    assert!(slice.expect("values", Dtype::Float32, 100, &gpu).is_ok());
    let said = |result: Result<DeviceSlice, SliceError>| result.unwrap_err().to_string();
    let wrong = [
        (
            device.slice(1000, Dtype::Int64, 4),
            "4 int64 elements at byte 1000 reach past the end of 1024 bytes of device memory (allowed: up to 3 from there)",
        ),
        (
            device.slice(usize::MAX, Dtype::UInt8, 2),
            "2 uint8 elements at byte 18446744073709551615 reach past the end of 1024 bytes of device memory \
             (allowed: up to 0 from there)",
        ),
        (
            device.slice(2, Dtype::Float32, 1),
            "float32 elements can't begin at byte 2 (allowed: multiples of 4)",
        ),
        (
            slice.expect("values", Dtype::Float64, 100, &gpu),
            "`values` is float32, not float64",
        ),
        (
            slice.expect("values", Dtype::Float32, 99, &gpu),
            "`values` has 100 elements, not 99",
        ),
    ];
    for (result, text) in wrong {
        assert_eq!(said(result), text);
    }
    if device_count(kind()).unwrap() > 1 {
        let other = slice.expect("values", Dtype::Float32, 100, &Gpu::open(kind(), 1).unwrap());
        assert_eq!(
            said(other),
            format!("`values` is on {0}:0, the operation on {0}:1", kind())
        );
    }
    ran(&gpu, "device: slices", 6);
}

#[test]
fn a_buffer_keeps_its_room_and_its_budget() {
    let Some(gpu) = gpu() else { return };
    let budget = Budget::new(Some(1 << 20));
    let mut device = DeviceBuf::new(&gpu, &budget);
    device.reserve(300_000).unwrap();
    let capacity = device.capacity();
    assert_eq!(budget.used(), capacity);
    let kept = pattern(capacity, 5);
    // SAFETY: the memory is not page-locked.
    unsafe { device.upload(0, &kept) }.unwrap();
    device.reserve(200_000).unwrap();
    assert_eq!((device.capacity(), budget.used()), (capacity, capacity));
    assert_eq!(contents(&device, capacity), kept);

    let error = device.reserve(2 << 20).unwrap_err();
    assert!(
        matches!(error, DeviceFault::OutOfBudget { limit, .. } if limit == 1 << 20),
        "{error}"
    );
    assert!(error.is_memory());
    assert_eq!((device.capacity(), budget.used()), (0, 0));
    device.reserve(1 << 20).unwrap();
    drop(device);
    assert_eq!(budget.used(), 0);
    ran(&gpu, "device: budgets", 4);
}

#[test]
fn more_than_any_device_has_is_out_of_memory() {
    let Some(gpu) = gpu() else { return };
    let mut device = DeviceBuf::new(&gpu, &Budget::new(None));
    let error = device.reserve(1 << 50).unwrap_err();
    assert!(
        matches!(error, DeviceFault::OutOfMemory { device, kind: "device", bytes }
            if device == Device::Gpu(kind(), 0) && bytes == 1 << 50),
        "{error}"
    );
    assert!(error.is_memory());
    device.reserve(1 << 10).unwrap();
    ran(&gpu, "device: out of memory", 1);
}

#[test]
fn a_kernel_takes_its_own_parameters_alone() {
    let Some(gpu) = gpu() else { return };
    // HIP does not tell the parameters of a kernel, so that tests/layout.py alone compares the structs.
    if kind() == Kind::Cuda {
        // SAFETY: the struct has another size than the kernel's, so that nothing is launched.
        let error = unsafe { gpu.launch(EMPTY, [1, 1, 1], 32, &OtherParams { one: 1, more: 2 }) }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cuda:0: empty takes parameters of 4 bytes, it is launched with 16"
        );
    }
    let params = EmptyParams { unused: 0 };
    for grid in [[1, 1, 1], [7, 3, 2], [0, 1, 1]] {
        // SAFETY: the struct is the kernel's, which uses no memory.
        unsafe { gpu.launch(EMPTY, grid, 64, &params) }.unwrap();
    }
    gpu.synchronize().unwrap();
    // SAFETY: as above.
    let error = unsafe { gpu.launch(EMPTY, [1, 70_000, 1], 64, &params) }.unwrap_err();
    let (error, device) = (error.to_string(), format!("{}:0: ", kind()));
    assert!(error.starts_with(&device) && error.contains(" of empty"), "{error}");
    ran(&gpu, "device: launches", 5);
}

#[test]
fn a_graph_does_its_work_each_time() {
    let Some(gpu) = gpu() else { return };
    let mut pinned = PinnedBuf::new(&gpu);
    pinned.resize(256).unwrap();
    let (device, copy) = (buffer(&gpu, 256), buffer(&gpu, 256));
    let params = EmptyParams { unused: 0 };
    // SAFETY: the struct is the kernel's, which uses no memory.
    unsafe { gpu.launch(EMPTY, [1, 1, 1], 32, &params) }.unwrap();
    for starts_early in [true, false] {
        // Clones share the setting.
        gpu.clone().set_early_start(starts_early);
        let graph = gpu
            .capture(|| {
                // SAFETY: the page-locked memory is written between the launches of the graph alone, when all is done.
                unsafe { device.upload(0, pinned.bytes()) }?;
                // SAFETY: as above.
                unsafe { gpu.launch(EMPTY, [1, 1, 1], 32, &params) }?;
                copy.copy_from(0, &device, 0, 256)
            })
            .unwrap();
        for round in 0..3 {
            pinned.bytes_mut().copy_from_slice(&pattern(256, round));
            // SAFETY: the buffers are still there.
            unsafe { graph.launch() }.unwrap();
            assert_eq!(contents(&copy, 256), pattern(256, round));
        }
    }
    ran(&gpu, "device: graphs", 6);
}

/// Memory that is dropped during a capture leaves the capture whole.
#[test]
fn memory_is_given_back_during_a_capture() {
    let Some(gpu) = gpu() else { return };
    let mut pinned = PinnedBuf::new(&gpu);
    pinned.resize(256).unwrap();
    let (device, copy, unused) = (buffer(&gpu, 256), buffer(&gpu, 256), buffer(&gpu, 1 << 20));
    // SAFETY: the stream is synchronized by `contents`.
    unsafe { device.upload(0, &pattern(256, 1)) }.unwrap();
    let graph = gpu.capture(|| {
        drop((unused, pinned));
        copy.copy_from(0, &device, 0, 256)
    });
    // SAFETY: the buffers are still there.
    unsafe { graph.unwrap().launch() }.unwrap();
    assert_eq!(contents(&copy, 256), pattern(256, 1));
    ran(&gpu, "device: memory given back in a capture", 1);
}

#[test]
fn events_are_places_in_the_stream() {
    let Some(gpu) = gpu() else { return };
    let (start, end) = (gpu.event().unwrap(), gpu.event().unwrap());
    let device = buffer(&gpu, 1 << 20);
    start.record().unwrap();
    device.clear(0, 1 << 20).unwrap();
    end.record().unwrap();
    end.wait().unwrap();
    assert!(start.is_reached().unwrap());
    assert!(end.elapsed_us(&start).unwrap() >= 0.0);
    ran(&gpu, "device: events", 1);
}

#[test]
fn every_device_is_itself_from_any_thread() {
    let Some(gpu) = gpu() else { return };
    let count = device_count(kind()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let devices: Vec<Gpu> = (0..count).map(|ordinal| Gpu::open(kind(), ordinal).unwrap()).collect();
                let bytes = pattern(10_000, thread);
                let buffers: Vec<DeviceBuf> = devices.iter().map(|gpu| buffer(gpu, bytes.len())).collect();
                // SAFETY: the memory is not page-locked.
                unsafe { buffers[0].upload(0, &bytes) }.unwrap();
                for i in 1..count {
                    assert_eq!(buffers[i].gpu().ordinal(), i);
                    devices[i - 1].synchronize().unwrap();
                    buffers[i].copy_from(0, &buffers[i - 1], 0, bytes.len()).unwrap();
                }
                assert_eq!(contents(&buffers[count - 1], bytes.len()), bytes);
            });
        }
    });
    let asked = Gpu::open(kind(), count).err().unwrap();
    assert_eq!(
        asked,
        DeviceFault::Unavailable(Unavailable::NoSuchDevice {
            kind: kind(),
            ordinal: count,
            count
        })
    );
    if count > 1 {
        let other = Gpu::open(kind(), 1).unwrap();
        assert_eq!(
            gpu.check(&other),
            Err(DeviceFault::WrongDevice {
                expected: gpu.device(),
                came: other.device()
            })
        );
    }
    ran(&gpu, "device: threads", 4);
}

#[test]
fn divisions_and_roots_are_rounded_as_the_cpu_rounds_them() {
    let Some(gpu) = gpu() else { return };
    assert_eq!(arithmetic::differing(&gpu).unwrap(), 0);
    ran(&gpu, "device: divisions and roots", arithmetic::RESULTS);
}
