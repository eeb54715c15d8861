//! The package's random numbers: a 32-bit linear congruential generator, and normal draws from it.

/// Steps of the generator per `u32` range: what a state is divided by.
const RANGE: f64 = 4_294_967_296.0;

/// The generator behind seeded weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lcg(u32);

impl Lcg {
    /// Starts from `seed`; 0 is as 1.
    pub fn new(seed: u32) -> Self {
        Self(seed.max(1))
    }

    /// The next number in `[0, 1)`, uniform.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(self.0) / RANGE
    }

    /// The next normal number of mean 0 and standard deviation `std`. Takes two uniform ones (Box-Muller, the cosine).
    pub fn gaussian(&mut self, std: f64) -> f32 {
        let (u1, u2) = (self.uniform().max(1e-12), self.uniform());
        // Not the system's `ln` and `cos`: these differ in the last bit, and a seed has to mean the same bytes everywhere.
        let radius = std * (-2.0 * libm::log(u1)).sqrt();
        (radius * libm::cos(std::f64::consts::TAU * u2)) as f32
    }
}

/// A seed as JavaScript's `>>> 0` makes it of a number: the fraction dropped, modulo 2^32, what is not finite 0.
pub fn seed_of(number: f64) -> u32 {
    if number.is_finite() { number.trunc().rem_euclid(RANGE) as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_wrap() {
        for (number, seed) in [
            (0.0, 0),
            (-0.5, 0),
            (3.7, 3),
            (-3.7, u32::MAX - 2),
            (-1.0, u32::MAX),
            (4_294_967_303.0, 7),
            (1e300, 0),
            (f64::NAN, 0),
            (f64::NEG_INFINITY, 0),
        ] {
            assert_eq!(seed_of(number), seed, "{number}");
        }
    }
}
