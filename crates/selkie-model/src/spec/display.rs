//! A layer in a few words, as plans head it: `mamba2 + dense`.

use std::fmt;

use super::{FeedForward, Layer, Mixer};

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![];
        if self.shared.is_some() {
            parts.push("shared block".to_owned());
        }
        parts.extend(self.mixer.as_ref().map(|block| block.inner.to_string()));
        parts.extend(self.feed_forward.as_ref().map(|block| block.inner.to_string()));
        f.write_str(&parts.join(" + "))
    }
}

impl fmt::Display for Mixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mixer::Attention(a) => match (a.window, a.rope) {
                (Some(w), _) => write!(f, "attention over {w}"),
                (None, None) => f.write_str("attention without positions"),
                (None, Some(_)) => f.write_str("attention"),
            },
            Mixer::LatentAttention(_) => f.write_str("latent attention"),
            Mixer::Mamba1(_) => f.write_str("mamba1"),
            Mixer::Mamba2(_) => f.write_str("mamba2"),
            Mixer::Mamba3(m) if m.shape.rank > 1 => write!(f, "mamba3 of rank {}", m.shape.rank),
            Mixer::Mamba3(_) => f.write_str("mamba3"),
            Mixer::Cssd(_) => f.write_str("cssd"),
            Mixer::ShortConv(_) => f.write_str("short convolution"),
            Mixer::DeltaNet(_) => f.write_str("delta net"),
            Mixer::Parallel(branches) => {
                let names: Vec<String> = branches.iter().map(|branch| branch.mixer.to_string()).collect();
                write!(f, "({})", names.join(" beside "))
            }
        }
    }
}

impl fmt::Display for FeedForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.mixture()) {
            (FeedForward::Shared(_), Some(m)) => {
                write!(f, "mixture of {} ({} used) and a shared block", m.n_experts, m.n_used)
            }
            (_, Some(m)) => write!(f, "mixture of {} ({} used)", m.n_experts, m.n_used),
            (_, None) => f.write_str("dense"),
        }
    }
}
