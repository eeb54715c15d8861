//! What training makes smaller.

use crate::reference::Real;

/// What is added to plain cross-entropy; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossTerms {
    /// ε: the target has weight `1 - ε`, and ε is spread evenly over the whole vocabulary.
    pub label_smoothing: f32,
    /// Weight of `lse²`, which keeps the logits from drifting.
    pub z_loss: f32,
}

/// The mean over rows with a target of `lse - (1 - ε)·l[target] - ε·mean(l) + z·lse²`, `lse = ln Σ e^l`, for logits `l`
/// `[rows, vocab_size]`. 0 where no row has one.
pub fn cross_entropy<T: Real>(logits: &[T], targets: &[Option<u32>], terms: LossTerms) -> T {
    let vocab_size = logits.len() / targets.len().max(1);
    let (smoothing, z) = (T::from_f32(terms.label_smoothing), T::from_f32(terms.z_loss));
    let mut sum = T::default();
    for (row, target) in logits.chunks_exact(vocab_size.max(1)).zip(targets) {
        let Some(target) = *target else { continue };
        let lse = log_sum_exp(row);
        let mean = row.iter().copied().sum::<T>() / T::from_usize(vocab_size);
        let right = (T::from_f64(1.0) - smoothing) * row[target as usize];
        sum += lse - right - smoothing * mean + z * lse * lse;
    }
    sum / counted(targets)
}

/// `dlogits` `[rows, vocab_size]` of [`cross_entropy`]: with `p = softmax(l)`, each row with a target gets
/// `dloss / n · ((1 + 2·z·lse)·p - (1 - ε)·[is target] - ε / vocab_size)`, every other 0.
pub fn cross_entropy_backward<T: Real>(logits: &[T], targets: &[Option<u32>], terms: LossTerms, dloss: T) -> Vec<T> {
    let vocab_size = logits.len() / targets.len().max(1);
    let (smoothing, z) = (T::from_f32(terms.label_smoothing), T::from_f32(terms.z_loss));
    let (one, two) = (T::from_f64(1.0), T::from_f64(2.0));
    let share = dloss / counted(targets);
    let mut dlogits = Vec::with_capacity(logits.len());
    for (row, target) in logits.chunks_exact(vocab_size.max(1)).zip(targets) {
        let Some(target) = *target else {
            dlogits.extend(row.iter().map(|_| T::default()));
            continue;
        };
        let lse = log_sum_exp(row);
        for (i, &logit) in row.iter().enumerate() {
            let p = (logit - lse).exp();
            let right = if i == target as usize { one - smoothing } else { T::default() };
            let spread = smoothing / T::from_usize(vocab_size);
            dlogits.push(share * ((one + two * z * lse) * p - right - spread));
        }
    }
    dlogits
}

/// How many rows have a target; 1 where none has, so that their mean is 0.
fn counted<T: Real>(targets: &[Option<u32>]) -> T {
    T::from_usize(targets.iter().flatten().count().max(1))
}

/// `max + ln Σ e^(l - max)`.
fn log_sum_exp<T: Real>(row: &[T]) -> T {
    let max = row.iter().copied().fold(row[0], |a, b| if b > a { b } else { a });
    max + row.iter().map(|&l| (l - max).exp()).sum::<T>().ln()
}
