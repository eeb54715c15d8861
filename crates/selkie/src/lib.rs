//! Selkie runs language models: it turns a model's name into files, and files into tokens.

pub mod models;
