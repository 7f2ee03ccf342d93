//! What `throughline` can do; one module for each verb, with the name of the verb.

pub mod calls;
pub mod captures;
pub mod check;
pub mod export;
pub mod flame;
pub mod jit;
pub mod lab;
pub mod path;
pub mod rank;
pub mod record;

mod input;
mod targets;
mod view;
