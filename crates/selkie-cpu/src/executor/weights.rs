//! A model's weights in the forms that kernels take: matrices in their stored blocks, vectors in f32.

use selkie_model::{Error, LoadedWeight, LoadedWeights, ModelSpec, Plan, Result, WeightId};

use crate::Matrix;

/// One weight, in the form that the ops which name it want.
enum Form {
    Matrix(Matrix),
    /// A stack `[n, out, in]` as its `n` matrices.
    Stack(Vec<Matrix>),
    Vector(Vec<f32>),
    /// Named by no op; a rope's divisors, say.
    Unused,
}

/// All weights of a model.
pub(super) struct Loaded {
    forms: Vec<Form>,
    /// As they were loaded, for what is read rarely.
    pub all: LoadedWeights,
}

static NO_VECTOR: &[f32] = &[];

impl Loaded {
    pub fn new(plan: &Plan, spec: &ModelSpec, all: LoadedWeights) -> Result<Self> {
        let mut forms: Vec<Form> = spec.weights.iter().map(|_| Form::Unused).collect();
        let mut set = |id: WeightId, make: &dyn Fn(&LoadedWeight) -> Result<Form>| -> Result<()> {
            let form = &mut forms[id.0 as usize];
            if matches!(form, Form::Unused) {
                *form = make(all.get(id))?;
            }
            Ok(())
        };
        for op in &plan.ops {
            let weights = op.weights();
            weights.matrices.into_iter().try_for_each(|id| set(id, &matrix))?;
            weights.stacks.into_iter().try_for_each(|id| set(id, &stack))?;
            weights.vectors.into_iter().try_for_each(|id| set(id, &vector))?;
        }
        Ok(Self { forms, all })
    }

    /// A matrix; `new` has made one of each weight that an op multiplies with.
    pub fn matrix(&self, id: WeightId) -> &Matrix {
        match &self.forms[id.0 as usize] {
            Form::Matrix(matrix) => matrix,
            _ => unreachable!("weight {} is no matrix of the plan that it was loaded for", id.0),
        }
    }

    /// The matrices of a stack.
    pub fn stack(&self, id: WeightId) -> &[Matrix] {
        match &self.forms[id.0 as usize] {
            Form::Stack(matrices) => matrices,
            _ => &[],
        }
    }

    /// A vector.
    pub fn vector(&self, id: WeightId) -> &[f32] {
        match &self.forms[id.0 as usize] {
            Form::Vector(values) => values,
            _ => NO_VECTOR,
        }
    }
}

fn vector(weight: &LoadedWeight) -> Result<Form> {
    weight.to_f32().map(Form::Vector)
}

fn matrix(weight: &LoadedWeight) -> Result<Form> {
    let parts = weight.parts.iter().map(|part| (part.dtype, part.bytes.clone()));
    Matrix::new(weight.row_len(), parts).map(Form::Matrix).map_err(named(weight))
}

/// One matrix an expert, whether the file has them in one tensor or in many.
fn stack(weight: &LoadedWeight) -> Result<Form> {
    let &[n, out, input] = weight.shape.as_slice() else {
        return Err(Error::Tensor { tensor: weight.name.clone(), what: "is no stack of matrices".into() });
    };
    let mut matrices = Vec::with_capacity(n);
    for part in &weight.parts {
        let rows = part.shape[0];
        let bytes = part.bytes.len() / (rows / out).max(1);
        for expert in 0..rows / out {
            let slice = part.bytes.slice(expert * bytes..(expert + 1) * bytes);
            matrices.push(Matrix::new(input, [(part.dtype, slice)]).map_err(named(weight))?);
        }
    }
    Ok(Form::Stack(matrices))
}

fn named(weight: &LoadedWeight) -> impl Fn(crate::Error) -> Error {
    let tensor = weight.name.clone();
    move |error| Error::Tensor { tensor: tensor.clone(), what: error.to_string() }
}
