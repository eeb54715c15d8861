//! Forward values and gradients against the golden files. Inputs there are rounded to f32, so bounds are f32's.

use selkie_model::{reference::ops::*, spec::Activation};
use serde_json::Value;

use crate::support::{Golden, near, swap_axes};

const BOUND: f64 = 2e-7;

#[test]
fn activations() {
    type Function = fn(f64) -> f64;
    type Any<'a> = &'a dyn Fn(f64) -> f64;
    let golden = Golden::open("activations");
    let activation = |kind: Activation| (move |x| activate(x, kind), move |x| activate_derivative(x, kind));
    let (silu, dsilu) = activation(Activation::Silu);
    let (tanh, dtanh) = activation(Activation::GeluTanh);
    let (erf, derf) = activation(Activation::GeluErf);
    let plain: [(&str, Any<'_>, Any<'_>); 6] = [
        ("silu", &silu, &dsilu),
        ("gelu_tanh", &tanh, &dtanh),
        ("gelu_erf", &erf, &derf),
        ("sigmoid", &(sigmoid as Function), &(sigmoid_derivative as Function)),
        ("relu2", &(relu_squared as Function), &(relu_squared_derivative as Function)),
        ("softplus", &(softplus as Function), &(softplus_derivative as Function)),
    ];
    let mut seen = 0;
    for (case, function, derivative) in plain {
        let x = golden.get(&format!("{case}.in.x"));
        let dy = golden.get(&format!("{case}.grad_out.y"));
        let y: Vec<f64> = x.iter().map(|&x| function(x)).collect();
        let dx: Vec<f64> = x.iter().zip(&dy).map(|(&x, dy)| derivative(x) * dy).collect();
        near(&y, &golden.get(&format!("{case}.out.y")), BOUND, case);
        near(&dx, &golden.get(&format!("{case}.grad.x")), BOUND, &format!("gradient of {case}"));
        seen += 1;
    }
    for case in ["swiglu", "geglu_tanh", "gptoss_swiglu"] {
        let [gate, up, dy] = ["in.gate", "in.up", "grad_out.y"].map(|name| golden.get(&format!("{case}.{name}")));
        let (y, (dgate, dup)) = if case == "gptoss_swiglu" {
            let parameters = golden.parameters(case);
            let number = |key: &str| parameters[key].as_f64().expect("a number");
            let (alpha, limit) = (number("alpha"), number("limit"));
            let clamped = gate.iter().any(|&g| g > limit) && up.iter().any(|&u| u.abs() > limit);
            assert!(clamped, "the case should meet its limits");
            (clamped_swiglu(&gate, &up, alpha, limit), clamped_swiglu_backward(&gate, &up, alpha, limit, &dy))
        } else {
            let kind = if case == "swiglu" { Activation::Silu } else { Activation::GeluTanh };
            (glu(&gate, &up, kind), glu_backward(&gate, &up, kind, &dy))
        };
        near(&y, &golden.get(&format!("{case}.out.y")), BOUND, case);
        near(&dgate, &golden.get(&format!("{case}.grad.gate")), BOUND, &format!("gate gradient of {case}"));
        near(&dup, &golden.get(&format!("{case}.grad.up")), BOUND, &format!("up gradient of {case}"));
        seen += 1;
    }
    assert_eq!(seen, golden.cases().len(), "a case was left out");
}

#[test]
fn attention_and_its_gradients() {
    let golden = Golden::open("attention");
    for case in golden.cases() {
        let parameters = golden.parameters(&case);
        let name = |name: &str| format!("{case}.{name}");
        let q_shape = golden.shape(&name("in.q"));
        let (v_shape, y_shape) = (golden.shape(&name("in.v")), golden.shape(&name("out.y")));
        let (batch, positions) = (q_shape[0], v_shape[2]);
        let shape = AttentionShape {
            n_heads: q_shape[1],
            n_kv_heads: v_shape[1],
            head_dim: q_shape[3],
            v_head_dim: v_shape[3],
            scale: parameters["scale"].as_f64().expect("scale") as f32,
            softcap: parameters["softcap"].as_f64().map(|c| c as f32),
            window: parameters["window"].as_u64().map(|w| w as usize),
            causal: parameters["causal"].as_bool().expect("causal"),
        };
        let past = positions - q_shape[2];
        let sinks = golden.has(&name("in.sinks")).then(|| golden.get(&name("in.sinks")));
        // Rows first, one batch entry.
        let rows = |what: &str, entry: usize| {
            let (values, s) = (golden.get(&name(what)), golden.shape(&name(what)));
            let each = s[1] * s[2] * s[3];
            swap_axes(&values[entry * each..][..each], s[1], s[2], s[3])
        };
        for entry in 0..batch {
            let [q, k, v, dy] = ["in.q", "in.k", "in.v", "grad_out.y"].map(|what| rows(what, entry));
            let y = attention_with_sinks(&q, &k, &v, sinks.as_deref(), past, &shape);
            assert_eq!(y.len(), y_shape[1] * y_shape[2] * y_shape[3]);
            near(&y, &rows("out.y", entry), BOUND, &case);
            if sinks.is_none() {
                assert_eq!(y, attention(&q, &k, &v, past, &shape), "{case}");
            }
            let d = attention_backward(&q, &k, &v, sinks.as_deref(), past, &shape, &dy);
            near(&d.q, &rows("grad.q", entry), BOUND, &name("dq"));
            near(&d.k, &rows("grad.k", entry), BOUND, &name("dk"));
            near(&d.v, &rows("grad.v", entry), BOUND, &name("dv"));
            if sinks.is_some() {
                assert_eq!(batch, 1, "sinks are shared by a batch");
                near(&d.sinks.expect("dsinks"), &golden.get(&name("grad.sinks")), BOUND, &name("dsinks"));
            }
        }
    }
}

#[test]
fn norms() {
    let golden = Golden::open("norms");
    for case in golden.cases() {
        let parameters = golden.parameters(&case);
        let name = |name: &str| format!("{case}.{name}");
        let eps = parameters["eps"].as_f64().expect("eps");
        let (x, dy) = (golden.get(&name("in.x")), golden.get(&name("grad_out.y")));
        if case == "l2" {
            // x / sqrt(Σ x² + eps) is an RMS norm with 1/√n for a weight and eps/n.
            let n = golden.shape(&name("in.x"))[1];
            let root = (n as f64).sqrt();
            let eps = eps / n as f64;
            near(&scale(&rms_norm_plain(&x, n, eps), 1.0 / root), &golden.get(&name("out.y")), BOUND, &case);
            let dx = rms_norm_plain_backward(&x, n, eps, &scale(&dy, 1.0 / root));
            near(&dx, &golden.get(&name("grad.x")), BOUND, &name("dx"));
            continue;
        }
        let mut weight = golden.get(&name("in.weight"));
        let width = weight.len();
        let (mut y, dx, dweight);
        if case == "layer_norm" {
            let bias = golden.get(&name("in.bias"));
            y = layer_norm(&x, &weight, Some(&bias), eps);
            let dbias;
            (dx, dweight, dbias) = layer_norm_backward(&x, &weight, eps, &dy);
            near(&dbias, &golden.get(&name("grad.bias")), BOUND, &name("dbias"));
        } else {
            if parameters["weight_is_offset_from_one"] == Value::Bool(true) {
                weight.iter_mut().for_each(|w| *w += 1.0);
            }
            let group = parameters["group_size"].as_u64().map_or(width, |g| g as usize);
            // A gate comes before the norm, or after it, or not at all.
            let before = parameters["norm_before_gate"] == Value::Bool(false);
            let gate = golden.find(&name("in.z"));
            let gated = |x: &[f64], at: bool| match &gate {
                Some(gate) if at => glu(gate, x, Activation::Silu),
                _ => x.to_vec(),
            };
            let ungate = |x: &[f64], at: bool, dy: Vec<f64>| match &gate {
                Some(gate) if at => {
                    let (dgate, dx) = glu_backward(gate, x, Activation::Silu, &dy);
                    near(&dgate, &golden.get(&name("grad.z")), BOUND, &name("dz"));
                    dx
                }
                _ => dy,
            };
            let entering = gated(&x, before);
            let normed = rms_norm(&entering, &weight, group, eps);
            y = gated(&normed, !before);
            if case == "rms_bias" {
                let bias = golden.get(&name("in.bias"));
                y = y.chunks_exact(width).flat_map(|row| add(row, &bias, 1.0)).collect();
            }
            let through;
            (through, dweight) = rms_norm_backward(&entering, &weight, group, eps, &ungate(&normed, !before, dy));
            dx = ungate(&x, before, through);
        }
        near(&y, &golden.get(&name("out.y")), BOUND, &case);
        near(&dx, &golden.get(&name("grad.x")), BOUND, &name("dx"));
        near(&dweight, &golden.get(&name("grad.weight")), BOUND, &name("dweight"));
    }
}

#[test]
fn cross_entropy_and_its_gradient() {
    let golden = Golden::open("cross_entropy");
    for case in golden.cases() {
        let parameters = golden.parameters(&case);
        let name = |name: &str| format!("{case}.{name}");
        let number = |key: &str| parameters[key].as_f64().expect("a number");
        let logits = golden.get(&name("in.logits"));
        let ignored = number("ignore_index") as i32;
        let targets: Vec<Option<u32>> =
            golden.ints(&name("in.targets")).iter().map(|&t| (t != ignored).then_some(t as u32)).collect();
        assert_eq!(case == "ignore_index", targets.contains(&None), "{case}");
        let terms = LossTerms { label_smoothing: number("label_smoothing") as f32, z_loss: number("z_loss") as f32 };
        // A sum is the mean times the rows that count.
        let times = if parameters["reduction"] == "sum" { targets.iter().flatten().count() as f64 } else { 1.0 };
        let loss = times * cross_entropy(&logits, &targets, terms);
        near(&[loss], &golden.get(&name("out.loss")), BOUND, &case);
        let dlogits = cross_entropy_backward(&logits, &targets, terms, times);
        near(&dlogits, &golden.get(&name("grad.logits")), BOUND, &name("dlogits"));
    }
    assert_eq!(cross_entropy(&[1.0, 2.0], &[None], LossTerms::default()), 0.0, "no targets, no loss");
    assert_eq!(cross_entropy_backward(&[1.0, 2.0], &[None], LossTerms::default(), 1.0), [0.0, 0.0]);
}
