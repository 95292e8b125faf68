//! Divisions and square roots of a device, compared with the CPU's: an operation gives the same bits on both only if these do.

use super::{Budget, DeviceBuf, DeviceFault, DevicePtr, Gpu, Params, images};
use robocache_kernels::Kernel;

const ARITHMETIC: Kernel = images::ARITHMETIC.kernel("arithmetic");

/// Number of dividends, and number of divisors, of each float type.
const COUNT: usize = 64;

/// Number of results that [`differing`] compares: a quotient and a square root of each dividend, in both float types.
pub const RESULTS: usize = 4 * COUNT;

/// Parameters of the kernel `arithmetic`: `ArithmeticParams` of kernels/arithmetic.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArithmeticParams<'a> {
    singles: DevicePtr<'a>,
    doubles: DevicePtr<'a>,
    single_results: DevicePtr<'a>,
    double_results: DevicePtr<'a>,
    count: u32,
}

// SAFETY: it has the fields of the kernel's struct.
unsafe impl Params for ArithmeticParams<'_> {}

/// Divides and takes square roots on a device and on the CPU, in float32 and float64, and counts the results whose bits differ. A
/// good part of the operands and of the results is subnormal.
///
/// # Errors
/// The driver's error.
pub fn differing(gpu: &Gpu) -> Result<usize, DeviceFault> {
    // A Lehmer generator chooses mantissas. Every third exponent is 0, which gives a subnormal number; the others are within 20 of
    // the exponent of 1.
    let mut state = 1u64;
    let mut next = || {
        state = state * 48_271 % 0x7fff_ffff;
        state
    };
    let singles: [f32; 2 * COUNT] = std::array::from_fn(|i| {
        let exponent = if i % 3 == 0 { 0 } else { 127 - 20 + next() % 40 };
        f32::from_bits(((exponent << 23) | (next() % (1 << 23)) | 1) as u32)
    });
    let doubles: [f64; 2 * COUNT] = std::array::from_fn(|i| {
        let exponent = if i % 3 == 0 { 0 } else { 1023 - 20 + next() % 40 };
        f64::from_bits((exponent << 52) | (next() << 21) | (next() % (1 << 21)) | 1)
    });
    let budget = Budget::new(None);
    let buffer = |bytes| {
        let mut buffer = DeviceBuf::new(gpu, &budget);
        buffer.reserve(bytes).map(|()| buffer)
    };
    let (single_bytes, double_bytes) = (size_of_val(&singles), size_of_val(&doubles));
    let [from_singles, to_singles] = [buffer(single_bytes)?, buffer(single_bytes)?];
    let [from_doubles, to_doubles] = [buffer(double_bytes)?, buffer(double_bytes)?];
    let params = ArithmeticParams {
        singles: from_singles.pointer(),
        doubles: from_doubles.pointer(),
        single_results: to_singles.pointer(),
        double_results: to_doubles.pointer(),
        count: COUNT as u32,
    };
    let (mut single_results, mut double_results) = ([0f32; 2 * COUNT], [0f64; 2 * COUNT]);
    // SAFETY: the parameters are the kernel's, and the buffers have room for its operands and results. All of it, the host's
    // arrays too, stays until the last results are fetched, which waits for the stream.
    unsafe {
        from_singles.upload(0, bytemuck::bytes_of(&singles))?;
        from_doubles.upload(0, bytemuck::bytes_of(&doubles))?;
        gpu.launch(ARITHMETIC, [1, 1, 1], COUNT as u32, &params)?;
    }
    to_singles.fetch(0, bytemuck::bytes_of_mut(&mut single_results))?;
    to_doubles.fetch(0, bytemuck::bytes_of_mut(&mut double_results))?;
    let expected_singles: [f32; 2 * COUNT] = std::array::from_fn(|i| match i.checked_sub(COUNT) {
        None => singles[i] / singles[COUNT + i],
        Some(i) => singles[i].sqrt(),
    });
    let expected_doubles: [f64; 2 * COUNT] = std::array::from_fn(|i| match i.checked_sub(COUNT) {
        None => doubles[i] / doubles[COUNT + i],
        Some(i) => doubles[i].sqrt(),
    });
    let singles = expected_singles.iter().zip(&single_results);
    let doubles = expected_doubles.iter().zip(&double_results);
    Ok(singles.filter(|(a, b)| a.to_bits() != b.to_bits()).count()
        + doubles.filter(|(a, b)| a.to_bits() != b.to_bits()).count())
}
