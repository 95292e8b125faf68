//! Hot loops of the CPU, each compiled for any CPU and for AVX2, with the same bits.

/// Defines a function twice: for the crate's target, and for x86-64 CPUs with AVX2, BMI and popcnt. The second version
/// runs if the CPU has these features. No feature changes a result: FMA is not among the features.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $T:ty),* $(,)?) $(-> $R:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $T),*) $(-> $R)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($arg: $T),*) $(-> $R)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
                #[allow(clippy::too_many_arguments)]
                fn wide($($arg: $T),*) $(-> $R)? {
                    body($($arg),*)
                }
                if crate::simd::has_avx2() {
                    // SAFETY: the CPU has the features that `wide` is compiled for.
                    return unsafe { wide($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// True if the CPU has the features that the AVX2 versions are compiled for.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}
