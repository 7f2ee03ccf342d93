// Work whose stacks are known, with what Rust adds to a stack: generic functions, closures, trait objects, recursion.
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

trait Shape {
    fn area(&self, n: u64) -> u64;
}

struct Square<T>(T);

impl<T: Copy + Into<u64>> Shape for Square<T> {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 {
        (0..n).fold(self.0.into(), |x, i| (x * 31 + i) % 1_000_003)
    }
}

#[inline(never)]
fn descend(depth: u32, shape: &dyn Shape) -> u64 {
    if depth == 0 {
        return std::hint::black_box(shape.area(100_000)); // no tail call, which leaves no frame
    }
    std::hint::black_box(descend(depth - 1, shape)) + u64::from(depth)
}

#[inline(never)]
fn count_words() -> usize {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for i in 0..2000 {
        *counts.entry(format!("word {}", i % 97)).or_default() += 1;
    }
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sorted.len()
}

fn main() {
    let seconds = std::env::args().nth(1).unwrap().parse().unwrap();
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let until = Instant::now() + Duration::from_secs(seconds);
    let worker = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || {
            let mut total = 0;
            while Instant::now() < until {
                total += count_words();
            }
            total
        })
        .unwrap();
    let mut total = 0;
    while Instant::now() < until {
        total += descend(30, &Square(7_u32));
    }
    println!("total {}", total + worker.join().unwrap() as u64);
}
