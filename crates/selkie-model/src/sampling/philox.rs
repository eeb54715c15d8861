//! Philox4x32-10, a counter-based generator (Salmon et al., SC 2011): a number is a function of key and counter alone,
//! so every executor finds the same one without sharing a state.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a counter and a key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product = |word: u32, multiplier: u32| {
            let wide = u64::from(word) * u64::from(multiplier);
            ((wide >> 32) as u32, wide as u32)
        };
        let (high0, low0) = product(counter[0], MULTIPLIERS[0]);
        let (high1, low1) = product(counter[2], MULTIPLIERS[1]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A uniform number in `[0, 1)` for the token at `position` of sequence `sequence`, with 24 random bits.
pub fn uniform(seed: u64, sequence: u64, position: u64) -> f32 {
    let counter = [position as u32, (position >> 32) as u32, sequence as u32, (sequence >> 32) as u32];
    let word = philox(counter, [seed as u32, (seed >> 32) as u32])[0];
    (word >> 8) as f32 / (1u32 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the Random123 distribution.
    #[test]
    fn agrees_with_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn is_uniform_and_depends_on_each_argument() {
        // A mean of so many numbers is off by 0.001, as a rule.
        let mean = (0..100_000).map(|p| f64::from(uniform(7, 0, p))).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.004, "{mean}");
        let at = uniform(7, 1, 3);
        let others = [uniform(8, 1, 3), uniform(7, 2, 3), uniform(7, 1 + (1 << 32), 3), uniform(7, 1, 4)];
        assert!(!others.contains(&at), "{at}, {others:?}");
    }
}
