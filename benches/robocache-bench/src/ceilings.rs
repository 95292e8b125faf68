//! Measures the limits of the machine, with which the other results are compared: rates of copying and clearing memory, and the
//! time of an empty kernel.

use crate::rows::{Rows, Scope};
use crate::timing;
use robocache::device::gpu::{Budget, DeviceBuf, DeviceFault, Gpu, Kernel, Params, PinnedBuf, images};

const EMPTY: Kernel = images::EMPTY.kernel("empty");
const EMPTIES: usize = 1000;

/// Parameters of the empty kernel, `EmptyParams` in kernels/empty.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct EmptyParams {
    unused: u32,
}

// SAFETY: `EmptyParams` has the fields of the kernel's struct of that name.
unsafe impl Params for EmptyParams {}

const COPIED_BYTES: usize = 512 << 20;
const COPIES: usize = 4;
const GRID_BYTES: usize = 256 * 256 * 256 * 4;
const GRIDS: usize = 8;
const PINNED_BYTES: [usize; 3] = [64 << 10, 131_072 * 3 * 4, 16 << 20];
const PINNED: usize = 16;

/// Number of bytes that all devices together copy in each direction.
const SHARED_BYTES: usize = 128 << 20;

/// Measures the rate at which several devices together read and write page-locked host memory. Each device copies in two
/// streams at once.
pub fn shared(rows: &mut Rows, gpus: &[Gpu], backend: &str) -> Result<(), DeviceFault> {
    let bytes = SHARED_BYTES / gpus.len();
    // Device memory with a stream of its own, and page-locked memory, for the copies in one direction.
    let one_way = |gpu: &Gpu| {
        let stream = gpu.another()?;
        let (mut device, mut host) = (DeviceBuf::new(&stream, &Budget::new(None)), PinnedBuf::new(&stream));
        device.reserve(bytes)?;
        device.clear(0, bytes)?;
        host.resize(bytes)?;
        Ok::<_, DeviceFault>((device, host))
    };
    let both_ways = gpus.iter().map(|gpu| Ok([one_way(gpu)?, one_way(gpu)?]));
    let mut both_ways = both_ways.collect::<Result<Vec<_>, DeviceFault>>()?;
    let mut failed = None;
    let times = timing::host(1, |_| {
        let copied = both_ways.iter_mut().try_for_each(|[(to, up), (from, down)]| {
            // SAFETY: nobody touches the host's memory before the streams are synchronized, right below.
            unsafe {
                to.upload(0, up.bytes())
                    .and_then(|()| from.download(0, down.bytes_mut()))
            }
        });
        let mut streams = both_ways.iter().flatten();
        let waited = streams.try_for_each(|(device, _)| device.gpu().synchronize());
        failed = failed.take().or(copied.and(waited).err());
    });
    failed.map_or(Ok(()), Err)?;
    let config = format!("pinned copies in both directions at once, {SHARED_BYTES} bytes each");
    rows.add("ceiling", &config, backend, Scope::Host, times, 2 * SHARED_BYTES);
    Ok(())
}

/// Measures the limits of one device. Stores the device's copy rate in `rows`, which compares later results with it.
pub fn measure(rows: &mut Rows, gpu: &Gpu) -> Result<(), DeviceFault> {
    let budget = Budget::new(None);
    let buffers = |count: usize, bytes: usize| {
        (0..count)
            .map(|_| {
                let mut buffer = DeviceBuf::new(gpu, &budget);
                buffer.reserve(bytes)?;
                buffer.clear(0, bytes)?;
                Ok(buffer)
            })
            .collect::<Result<Vec<_>, DeviceFault>>()
    };

    let (from, to) = (buffers(COPIES, COPIED_BYTES)?, buffers(COPIES, COPIED_BYTES)?);
    // The copy is not captured: in a graph the driver copies with another engine, which is slower.
    let times = timing::stream(gpu, COPIES, |set| to[set].copy_from(0, &from[set], 0, COPIED_BYTES))?;
    rows.add_copy("device copy, read and written", times, 2 * COPIED_BYTES);
    drop((from, to));

    let grids = buffers(GRIDS, GRID_BYTES)?;
    let times = timing::device(gpu, GRIDS, |set| grids[set].clear(0, GRID_BYTES))?;
    let add =
        |rows: &mut Rows, config: &str, times, bytes| rows.add("ceiling", config, "cuda", Scope::Device, times, bytes);
    add(rows, "memset 256x256x256 float32", times, GRID_BYTES);
    drop(grids);

    // SAFETY: the kernel touches no memory.
    let empty = |_| unsafe { gpu.launch(EMPTY, [1, 1, 1], 32, &EmptyParams { unused: 0 }) };
    add(rows, "empty kernel in a graph", timing::device(gpu, EMPTIES, empty)?, 0);

    for bytes in PINNED_BYTES {
        let device = buffers(PINNED, bytes)?;
        let mut host = Vec::new();
        for _ in 0..PINNED {
            let mut pinned = PinnedBuf::new(gpu);
            pinned.resize(bytes)?;
            host.push(pinned);
        }
        // SAFETY: nobody touches the host's memory before the stream is synchronized.
        let up = timing::device(gpu, PINNED, |set| unsafe { device[set].upload(0, host[set].bytes()) })?;
        add(rows, &format!("pinned copy host to device, {bytes} bytes"), up, bytes);
        // SAFETY: as above.
        let down = timing::device(gpu, PINNED, |set| unsafe {
            device[set].download(0, host[set].bytes_mut())
        })?;
        add(rows, &format!("pinned copy device to host, {bytes} bytes"), down, bytes);
        let mut failed = None;
        let waited = timing::host(PINNED, |set| {
            // SAFETY: as above.
            let copied = unsafe { device[set].upload(0, host[set].bytes()) };
            failed = failed.take().or(copied.and_then(|()| gpu.synchronize()).err());
        });
        failed.map_or(Ok(()), Err)?;
        let config = format!("pinned copy host to device, {bytes} bytes, issued and waited for");
        rows.add("ceiling", &config, "cuda", Scope::Host, waited, bytes);
    }
    Ok(())
}
