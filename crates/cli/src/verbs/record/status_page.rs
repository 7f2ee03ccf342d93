//! The number of requests from a page that the target serves: nginx's stub_status, or metrics in Prometheus' text format.
//!
//! The page is asked when the recording begins and when it ends; nothing else is contacted. What comes back is foreign: it is bounded in
//! size and time, and a page that says something else is a reason, not a number.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use throughline_profile::RequestCount;

/// How long a page may take, all told; the recording waits meanwhile.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Longest answer that is read. Metrics of a large gateway take a few megabytes.
const BYTES_MAX: u64 = 16 << 20;
/// Longest address that is taken.
const URL_BYTES_MAX: usize = 2048;

/// Counters of finished or accepted requests in the exporters that are known, in the order in which they are preferred: nginx's own and
/// nginx-lua-prometheus (APISIX), nginx-prometheus-exporter, Kong 3.
const METRICS: [&str; 5] = [
    "apisix_http_requests_total",
    "nginx_http_requests_total",
    "kong_nginx_requests_total",
    "kong_http_requests_total",
    "nginx_vts_server_requests_total",
];

/// An address of a status page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage {
    url: String,
    authority: String,
    path: String,
}

impl StatusPage {
    /// Checks an address: `http://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("--requests-from takes an address that begins with http://");
        };
        if url.len() > URL_BYTES_MAX || url.chars().any(|c| c.is_control() || c == ' ') {
            bail!(
                "--requests-from: the address is too long, or holds blanks or control characters"
            );
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.is_empty() || authority.contains(['@', '?', '#']) {
            bail!("--requests-from: {url} names no host, or more than a host and a port");
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self {
            url: url.to_owned(),
            authority: if has_port {
                authority.to_owned()
            } else {
                format!("{authority}:80")
            },
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    }

    /// Asks for the counter as it stands.
    fn read(&self) -> Result<Reading, String> {
        let answer = self
            .fetch()
            .map_err(|error| format!("{} cannot be read: {error}", self.url))?;
        let text = String::from_utf8_lossy(&answer);
        let body = body_of(&text).map_err(|problem| format!("{}: {problem}", self.url))?;
        count_in(body).ok_or_else(|| {
            format!(
                "{}: neither a stub_status page nor a counter of requests that is known",
                self.url
            )
        })
    }

    fn fetch(&self) -> std::io::Result<Vec<u8>> {
        let deadline = Instant::now() + TIME_MAX;
        let left = || {
            deadline
                .checked_duration_since(Instant::now())
                .filter(|left| !left.is_zero())
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::TimedOut))
        };
        let address = self
            .authority
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| std::io::Error::other("its host has no address"))?;
        let mut stream = TcpStream::connect_timeout(&address, left()?)?;
        stream.set_write_timeout(Some(left()?))?;
        // HTTP/1.0: the answer comes whole, not in chunks, and ends with the connection.
        write!(
            stream,
            "GET {} HTTP/1.0\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.path, self.authority
        )?;
        let mut answer = Vec::new();
        let mut chunk = vec![0; 1 << 16];
        loop {
            stream.set_read_timeout(Some(left()?))?;
            match stream.read(&mut chunk)? {
                0 => return Ok(answer),
                read => answer.extend(chunk.iter().take(read)),
            }
            if answer.len() as u64 > BYTES_MAX {
                return Err(std::io::Error::other("its answer is too long"));
            }
        }
    }
}

/// A counter at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    requests: u64,
    /// The page counts the request that asked for it: nginx counts when it has read the head.
    counts_itself: bool,
}

/// The body of a successful answer.
fn body_of(answer: &str) -> Result<&str, String> {
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or("the answer is no HTTP response")?;
    let status = head.lines().next().unwrap_or_default();
    let mut words = status.split(' ');
    match (words.next(), words.next()) {
        (Some(version), Some("200")) if version.starts_with("HTTP/1.") => Ok(body),
        (Some(version), Some(code)) if version.starts_with("HTTP/1.") => {
            let code: String = code.chars().filter(char::is_ascii_digit).take(3).collect();
            Err(format!("the answer has status {code}"))
        }
        _ => Err("the answer is no HTTP response".to_owned()),
    }
}

fn count_in(body: &str) -> Option<Reading> {
    if let Some(requests) = stub_status(body) {
        return Some(Reading {
            requests,
            counts_itself: true,
        });
    }
    let requests = METRICS.iter().find_map(|name| prometheus(body, name))?;
    Some(Reading {
        requests,
        counts_itself: false,
    })
}

/// `server accepts handled requests`, and three numbers on the next line (ngx_http_stub_status_module).
fn stub_status(body: &str) -> Option<u64> {
    let mut lines = body.lines();
    lines.find(|line| {
        line.trim_start()
            .starts_with("server accepts handled requests")
    })?;
    lines.next()?.split_whitespace().nth(2)?.parse().ok()
}

/// The sum of a counter over all its labels; `None` when it does not occur or a value is no count.
fn prometheus(body: &str, name: &str) -> Option<u64> {
    let mut sum = None;
    for line in body.lines() {
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        if !rest.starts_with([' ', '{']) {
            continue;
        }
        // Labels may hold blanks and braces in quotes; the value follows the last brace.
        let value = rest.rsplit('}').next()?.split_whitespace().next()?;
        let value: f64 = value.parse().ok()?;
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if !(0.0..=EXACT_MAX).contains(&value) {
            return None;
        }
        let total: u64 = sum.unwrap_or(0);
        sum = Some(total.saturating_add(value as u64));
    }
    sum
}

/// The requests of one recording by a page.
pub struct PageRequests {
    page: StatusPage,
    first: Option<Result<Reading, String>>,
}

impl PageRequests {
    pub fn new(page: StatusPage) -> Self {
        Self { page, first: None }
    }

    /// Takes the first reading, once.
    pub fn begin(&mut self) {
        if self.first.is_none() {
            self.first = Some(self.page.read());
        }
    }

    /// What is known before the last reading.
    pub fn so_far(&self) -> RequestCount {
        RequestCount::NotCounted {
            reason: match &self.first {
                Some(Err(reason)) => reason.clone(),
                _ => format!(
                    "the recording was cut off before {} was read again",
                    self.page.url
                ),
            },
        }
    }

    /// Takes the last reading.
    pub fn finish(&mut self) -> RequestCount {
        let Some(Ok(first)) = self.first.clone() else {
            return self.so_far();
        };
        match self.page.read().map(|last| between(first, last)) {
            Ok(Some(count)) => RequestCount::Counted {
                count,
                source: self.page.url.clone(),
            },
            Ok(None) => RequestCount::NotCounted {
                reason: format!(
                    "the counter of {} went back: the target was restarted",
                    self.page.url
                ),
            },
            Err(reason) => RequestCount::NotCounted { reason },
        }
    }
}

/// Requests between two readings, without those of the readings themselves.
fn between(first: Reading, last: Reading) -> Option<u64> {
    last.requests
        .checked_sub(first.requests)?
        .checked_sub(u64::from(last.counts_itself))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const STUB: &str = "Active connections: 2 \nserver accepts handled requests\n 112 112 9807 \nReading: 0 Writing: 1 Waiting: 1 \n";

    #[test]
    fn both_kinds_of_page_are_read_and_others_are_not() {
        assert_eq!(stub_status(STUB), Some(9807));
        let metrics = "# HELP nginx_http_requests_total x\n# TYPE nginx_http_requests_total counter\n\
            nginx_http_requests_total{host=\"a } 7\",status=\"200\"} 41\nnginx_http_requests_total{status=\"500\"} 1e2 1700000000000\n\
            nginx_http_requests_totals 5\n";
        assert_eq!(prometheus(metrics, "nginx_http_requests_total"), Some(141));
        assert_eq!(count_in("<html>server accepts</html>"), None);
        assert_eq!(count_in("nginx_http_requests_total NaN\n"), None);
        assert_eq!(count_in("nginx_http_requests_total -1\n"), None);
        assert_eq!(count_in("server accepts handled requests\n 1 1 x\n"), None);
    }

    #[test]
    fn the_questions_themselves_are_not_counted_and_a_counter_that_went_back_is_none() {
        let reading = |requests| Reading {
            requests,
            counts_itself: true,
        };
        assert_eq!(between(reading(10), reading(111)), Some(100));
        assert_eq!(between(reading(10), reading(11)), Some(0));
        assert_eq!(between(reading(10), reading(3)), None);
    }

    #[test]
    fn only_a_plain_http_address_is_taken() {
        let page = StatusPage::parse("http://127.0.0.1:8080/status?x=1").expect("an address");
        assert_eq!(
            (page.authority.as_str(), page.path.as_str()),
            ("127.0.0.1:8080", "/status?x=1")
        );
        assert_eq!(
            StatusPage::parse("http://localhost")
                .expect("an address")
                .authority,
            "localhost:80"
        );
        for refused in [
            "https://a/",
            "http:///x",
            "http://u:p@a/",
            "http://a/\r\nX: y",
            "file:///etc",
        ] {
            assert!(StatusPage::parse(refused).is_err(), "{refused}");
        }
    }

    /// A page that answers with these bytes.
    fn served(bytes: Vec<u8>) -> StatusPage {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&bytes);
        });
        StatusPage::parse(&url).expect("an address")
    }

    #[test]
    fn a_hostile_page_is_a_reason_and_no_number() {
        let ok = format!("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{STUB}");
        assert_eq!(served(ok.into_bytes()).read().map(|r| r.requests), Ok(9807));
        for hostile in [
            b"HTTP/1.1 403 Forbidden\r\n\r\nserver accepts handled requests\n 1 1 1\n".to_vec(),
            b"\x00\xff\xfe".to_vec(),
            Vec::new(),
            b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            vec![b'a'; (BYTES_MAX + 1000) as usize],
        ] {
            assert!(served(hostile).read().is_err());
        }
    }
}
