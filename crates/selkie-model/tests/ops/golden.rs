//! Forward values and gradients against the golden files. Inputs there are rounded to f32, so bounds are f32's.

use selkie_model::{
    reference::ops::*,
    spec::{Activation, GroupScore, Groups, Routing, Score},
};
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

/// Gated norms belong to an op of their own.
#[test]
fn norms() {
    let golden = Golden::open("norms");
    let mut seen = 0;
    for case in golden.cases() {
        if case.contains("gate") {
            continue;
        }
        seen += 1;
        let parameters = golden.parameters(&case);
        let name = |name: &str| format!("{case}.{name}");
        let eps = parameters["eps"].as_f64().expect("eps");
        let (x, dy) = (golden.get(&name("in.x")), golden.get(&name("grad_out.y")));
        if case == "l2" {
            // x / sqrt(Σ x² + eps) is an RMS norm with the weight 1/√n and eps/n.
            let n = golden.shape(&name("in.x"))[1];
            let weight = vec![(n as f64).powf(-0.5); n];
            let eps = eps / n as f64;
            near(&rms_norm(&x, &weight, n, eps), &golden.get(&name("out.y")), BOUND, &case);
            let (dx, _) = rms_norm_backward(&x, &weight, n, eps, &dy);
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
            y = rms_norm(&x, &weight, group, eps);
            if case == "rms_bias" {
                let bias = golden.get(&name("in.bias"));
                y = y.chunks_exact(width).flat_map(|row| add(row, &bias, 1.0)).collect();
            }
            (dx, dweight) = rms_norm_backward(&x, &weight, group, eps, &dy);
        }
        near(&y, &golden.get(&name("out.y")), BOUND, &case);
        near(&dx, &golden.get(&name("grad.x")), BOUND, &name("dx"));
        near(&dweight, &golden.get(&name("grad.weight")), BOUND, &name("dweight"));
    }
    assert_eq!(seen, 6, "a case was left out");
}

#[test]
fn routing() {
    let golden = Golden::open("moe_routing");
    let plain = Routing::softmax(false);
    let sigmoid = Routing { score: Score::Sigmoid, ..Routing::softmax(true) };
    let mut seen = 0;
    for (case, routing) in [
        ("softmax_topk", plain),
        ("softmax_topk_renormalised", Routing::softmax(true)),
        ("topk_softmax", Routing { score: Score::SoftmaxOfChosen, ..plain }),
        ("softmax_groups", plain),
        ("sigmoid_bias", sigmoid),
        ("sigmoid_bias_groups", sigmoid),
    ] {
        let parameters = golden.parameters(case);
        let count = |key: &str| parameters[key].as_u64().map(|n| n as usize);
        let scale = parameters["scaling"].as_f64().map_or(1.0, |s| s as f32);
        let groups = count("groups").map(|n_groups| Groups {
            n_groups,
            n_used: count("groups_kept").expect("groups_kept"),
            by: match parameters["group_score"].as_str() {
                Some("its best") => GroupScore::Best,
                Some("sum of its best two") => GroupScore::BestTwo,
                other => panic!("{case}: {other:?}"),
            },
        });
        let routing = Routing { scale, groups, ..routing };
        let (n_used, bias) = (count("k").expect("k"), golden.find(&format!("{case}.in.bias")));
        let logits = golden.get(&format!("{case}.in.logits"));
        let experts = golden.ints(&format!("{case}.out.experts"));
        let weights = golden.get(&format!("{case}.out.weights"));
        let n_experts = golden.shape(&format!("{case}.in.logits"))[1];
        for (row, scores) in logits.chunks_exact(n_experts).enumerate() {
            // Choices come in ascending index here, in descending weight there.
            let at = row * n_used..(row + 1) * n_used;
            let mut wanted: Vec<(i32, f64)> =
                experts[at.clone()].iter().copied().zip(weights[at].iter().copied()).collect();
            wanted.sort_by_key(|(expert, _)| *expert);
            let got = route(scores, bias.as_deref(), n_used, &routing);
            assert_eq!(
                got.iter().map(|c| c.expert as i32).collect::<Vec<_>>(),
                wanted.iter().map(|w| w.0).collect::<Vec<_>>(),
                "{case}, row {row}"
            );
            let (got, wanted): (Vec<f64>, Vec<f64>) = got.iter().zip(&wanted).map(|(g, w)| (g.weight, w.1)).unzip();
            near(&got, &wanted, BOUND, &format!("{case}, row {row}"));
        }
        seen += 1;
    }
    assert_eq!(seen, golden.cases().len(), "a case was left out");
}

/// A bias may bring every open expert below zero: the closed ones are not chosen all the same.
#[test]
fn closed_groups_stay_closed() {
    let groups = Groups { n_groups: 2, n_used: 1, by: GroupScore::BestTwo };
    let routing = Routing { score: Score::Sigmoid, groups: Some(groups), ..Routing::softmax(true) };
    let chosen = route(&[0.0, 0.1, -1.0, -2.0], Some(&[-3.0, -3.0, -9.0, -9.0]), 2, &routing);
    assert_eq!(chosen.iter().map(|c| c.expert).collect::<Vec<_>>(), [0, 1]);
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
