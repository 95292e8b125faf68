//! Macro `multiversion`: compiles a hot loop of the CPU twice, for any CPU and for AVX2. Both versions give the same bits.

/// Defines a function twice: for the crate's target, and for x86-64 CPUs with AVX2, BMI and popcnt. The second version runs if
/// the CPU has these features. Without FMA among them, both versions give the same result.
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

/// True if the CPU has AVX2, BMI1, BMI2 and popcnt, for which the second version of a `multiversion` function is compiled.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt")
}
