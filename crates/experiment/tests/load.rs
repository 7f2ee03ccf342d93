//! The load generator against servers whose behaviour is known.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throughline_experiment::load::{self, Expectation, LoadError, LoadPlan, Pace, ServeMessage};

const RIGHT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Serves each connection on a thread; `answer` gets the number of the request on its connection.
fn server(
    answer: impl Fn(usize, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = std::sync::Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = std::sync::Arc::clone(&answer);
            thread::spawn(move || serve_connection(stream, &*answer));
        }
    });
    address
}

fn serve_connection(
    mut stream: TcpStream,
    answer: &dyn Fn(usize, &mut TcpStream) -> std::io::Result<()>,
) {
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    for number in 0.. {
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut chunk) {
                Ok(count) if count > 0 => request.extend_from_slice(&chunk[..count]),
                _ => return,
            }
        }
        request.clear();
        if answer(number, &mut stream).is_err() {
            return;
        }
    }
}

fn plan(address: SocketAddr, pace: Pace, duration_ms: u64) -> LoadPlan {
    LoadPlan {
        address,
        path: "/".into(),
        host: "localhost".into(),
        headers: Vec::new(),
        connections: 4,
        pace,
        warm_up: Duration::ZERO,
        duration: Some(Duration::from_millis(duration_ms)),
        expect: Expectation {
            status: 200,
            body: Some("hello".into()),
        },
        cpu: None,
    }
}

fn run(plan: &LoadPlan) -> load::LoadResult {
    load::run(plan, &AtomicBool::new(false), || ()).unwrap()
}

#[test]
fn right_responses_are_counted_and_nothing_else_is() {
    let address = server(|_, stream| stream.write_all(RIGHT));
    let result = run(&plan(address, Pace::Closed, 300));
    assert!(result.requests > 100, "{result:?}");
    assert_eq!(result.errors.total(), 0, "{result:?}");
    let ratio = result.req_per_s * result.seconds / result.requests as f64;
    assert!((ratio - 1.0).abs() < 1e-9);
}

#[test]
fn a_response_that_arrives_byte_by_byte_is_one_response() {
    let address = server(|_, stream| {
        RIGHT
            .iter()
            .try_for_each(|byte| stream.write_all(std::slice::from_ref(byte)))
    });
    let result = run(&plan(address, Pace::Closed, 200));
    assert!(
        result.requests > 10 && result.errors.total() == 0,
        "{result:?}"
    );
}

#[test]
fn every_tenth_wrong_body_is_every_tenth_error() {
    let address = server(|number, stream| {
        let wrong = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO";
        stream.write_all(if number % 10 == 9 { wrong } else { RIGHT })
    });
    let result = run(&plan(address, Pace::Closed, 300));
    let expected = (result.requests + result.errors.body) / 10;
    // Each of the four connections may stand anywhere within its ten.
    assert!(result.errors.body.abs_diff(expected) <= 4, "{result:?}");
    assert_eq!(result.errors.total(), result.errors.body);
}

#[test]
fn a_wrong_status_is_an_error_even_with_the_right_body() {
    let address =
        server(|_, stream| stream.write_all(b"HTTP/1.1 502 Bad\r\nContent-Length: 5\r\n\r\nhello"));
    let result = run(&plan(address, Pace::Closed, 200));
    assert!(
        result.requests == 0 && result.errors.status > 10,
        "{result:?}"
    );
}

#[test]
fn connections_that_the_server_ends_are_opened_again() {
    let address = server(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")?;
        Err(std::io::ErrorKind::Other.into())
    });
    let result = run(&plan(address, Pace::Closed, 300));
    assert!(
        result.requests > 8 && result.errors.total() == 0,
        "{result:?}"
    );
}

#[test]
fn an_idle_connection_that_the_server_closes_is_no_error() {
    let address = server(|number, stream| {
        stream.write_all(RIGHT)?;
        if number == 5 {
            // The answer is out and read by now; what closes is an idle connection.
            thread::sleep(Duration::from_millis(20));
            return Err(std::io::ErrorKind::Other.into());
        }
        Ok(())
    });
    // Slow enough that a connection is idle most of the time.
    let mut slow = plan(address, Pace::Rate(20.0), 1000);
    slow.connections = 1;
    let result = run(&slow);
    assert_eq!(result.errors.total(), 0, "{result:?}");
    assert!(result.requests >= 19, "{result:?}");
}

#[test]
fn broken_and_nonsensical_answers_are_told_apart() {
    let address = server(|_, _| Err(std::io::ErrorKind::Other.into()));
    let broken = run(&plan(address, Pace::Closed, 200));
    assert!(
        broken.requests == 0 && broken.errors.connection > 0,
        "{broken:?}"
    );
    assert_eq!(broken.errors.total(), broken.errors.connection);

    let address = server(|_, stream| stream.write_all(b"\x00\x01\x02 what?\r\n\r\n"));
    let nonsense = run(&plan(address, Pace::Closed, 200));
    assert!(
        nonsense.requests == 0 && nonsense.errors.protocol > 0,
        "{nonsense:?}"
    );
    assert_eq!(nonsense.errors.total(), nonsense.errors.protocol);
}

#[test]
fn an_endless_response_is_an_error_and_not_all_of_memory() {
    let address = server(|_, stream| {
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
        loop {
            stream.write_all(&[b'x'; 64 << 10])?;
        }
    });
    let mut endless = plan(address, Pace::Closed, 500);
    endless.connections = 1;
    let result = run(&endless);
    assert!(
        result.requests == 0 && result.errors.protocol > 0,
        "{result:?}"
    );
}

#[test]
fn a_fixed_rate_sends_what_it_says() {
    let address = server(|_, stream| stream.write_all(RIGHT));
    let result = run(&plan(address, Pace::Rate(500.0), 1000));
    let sent = result.requests + result.errors.total();
    assert_eq!(result.errors.total(), 0, "{result:?}");
    // The request of the last instant may fall on either side of the end.
    assert!((499..=501).contains(&(sent + result.unsent)), "{result:?}");
}

#[test]
fn latency_at_a_fixed_rate_counts_from_the_intended_time() {
    // One stall of 300 ms at 1,000 requests/s on one connection: 300 requests come late, the first by
    // 300 ms and the last by nothing, so a fifth of 1,500 requests waits 150 ms and more on average.
    // Timed from the real sending, a single request would show it.
    let address = server(|number, stream| {
        if number == 500 {
            thread::sleep(Duration::from_millis(300));
        }
        stream.write_all(RIGHT)
    });
    let mut stalled = plan(address, Pace::Rate(1000.0), 1500);
    stalled.connections = 1;
    let result = run(&stalled);
    assert!(result.latency.p90_us > 100_000.0, "{result:?}");
    assert!(result.latency.max_us >= 295_000.0, "{result:?}");
}

#[test]
fn the_warm_up_is_in_no_figure() {
    let first = Instant::now();
    let address = server(move |_, stream| {
        if first.elapsed() < Duration::from_millis(200) {
            stream.write_all(b"HTTP/1.1 503 Warming\r\nContent-Length: 0\r\n\r\n")
        } else {
            stream.write_all(RIGHT)
        }
    });
    let mut warmed = plan(address, Pace::Closed, 200);
    warmed.warm_up = Duration::from_millis(500);
    let result = run(&warmed);
    assert!(
        result.requests > 10 && result.errors.total() == 0,
        "{result:?}"
    );
    assert!(result.seconds < 0.45, "{result:?}");
}

#[test]
fn the_stop_flag_ends_a_load_without_duration() {
    let address = server(|_, stream| stream.write_all(RIGHT));
    let mut endless = plan(address, Pace::Closed, 0);
    endless.duration = None;
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
        });
        load::run(&endless, &stop, || ()).unwrap()
    });
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(result.requests > 10, "{result:?}");
}

#[test]
fn nobody_listening_is_an_error_with_the_address() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = load::run(
        &plan(address, Pace::Closed, 100),
        &AtomicBool::new(false),
        || (),
    )
    .unwrap_err();
    assert!(matches!(error, LoadError::Connect { .. }));
    assert!(error.to_string().contains(&address.to_string()));
}

#[test]
fn a_served_plan_answers_with_its_start_and_its_result() {
    let address = server(|_, stream| stream.write_all(RIGHT));
    let line = serde_json::to_string(&plan(address, Pace::Closed, 100)).unwrap() + "\n";
    // The input stays open, as a parent keeps it: its end would stop the load.
    let (input, mut parent) = std::io::pipe().unwrap();
    parent.write_all(line.as_bytes()).unwrap();
    let mut output = Vec::new();
    load::serve(input, &mut output).unwrap();
    let messages: Vec<ServeMessage> = String::from_utf8(output)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    match messages.as_slice() {
        [ServeMessage::Started, ServeMessage::Result(result)] => assert!(result.requests > 10),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_plan_is_an_error_not_a_panic() {
    for text in ["", "\n", "{}", "{\"address\": 7}\n", "\u{0}\n"] {
        let mut output = Vec::new();
        assert!(
            load::serve(text.as_bytes(), &mut output).is_err(),
            "{text:?}"
        );
        assert!(output.is_empty());
    }
}

/// An nginx that answers at once, on a free port; ends when it is dropped.
struct PlainNginx {
    child: std::process::Child,
    address: SocketAddr,
    _directory: tempfile::TempDir,
}

impl PlainNginx {
    fn start() -> Self {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display();
        let configuration = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/log;
             events {{ worker_connections 1024; }}
             http {{
                 access_log off;
                 keepalive_requests 4294967295;
                 server {{ listen {address}; location / {{ return 200 hello; }} }}
             }}"
        );
        let file = directory.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let child = std::process::Command::new("/usr/sbin/nginx")
            .arg("-c")
            .arg(file)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(address).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        Self {
            child,
            address,
            _directory: directory,
        }
    }
}

impl Drop for PlainNginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_core_of_generator_is_enough_for_50_000_requests_a_second() {
    if !support::can_run_labs() {
        return;
    }
    let nginx = PlainNginx::start();
    let mut saturating = plan(nginx.address, Pace::Closed, 2000);
    saturating.connections = 64;
    let result = run(&saturating);
    assert_eq!(result.errors.total(), 0, "{result:?}");
    // Its CPU time by request, because its throughput also depends on who else wants the CPUs.
    let us = result.generator_cpu_us / result.requests as f64;
    eprintln!(
        "{us:.1} us of generator CPU per request, {:.0} requests/s",
        result.req_per_s
    );
    assert!(
        us < 20.0,
        "{us} us of CPU per request are {} requests/s at most",
        1e6 / us
    );
}
