//! The load of a lab, in a process of its own: reads its plan from standard input. Tests of the recorder run it.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(throughline_experiment::load::serve(
        std::io::stdin(),
        std::io::stdout(),
    )?)
}
