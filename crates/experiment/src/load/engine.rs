//! The loop that generates the load: which connection sends when, what counts, what is an error.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::LoadError;
use super::connection::{Connection, Received};
use super::plan::{LoadPlan, Pace};
use super::report::{LatencyHistogram, LoadErrors, LoadResult};
use super::response::Response;
use crate::sys;

/// How long one poll may last, so that the stop flag and the time limits are seen.
const TICK: Duration = Duration::from_millis(20);
/// A response that takes longer than this counts as a timeout.
const RESPONSE_LIMIT: Duration = Duration::from_secs(10);
/// How long requests on their way at the end are waited for.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection that could not be opened again is left alone.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Token of the timer; connections have their index.
const TIMER: Token = Token(usize::MAX);

/// Generates the load of `plan` on the calling thread until its duration is over or `stop` is set,
/// then waits for the responses still on their way.
///
/// `on_started` is called once, when all connections stand and before the first request.
///
/// # Errors
///
/// See [`LoadError`]; faults of single requests are counted in the result instead.
pub fn run(
    plan: &LoadPlan,
    stop: &AtomicBool,
    on_started: impl FnOnce(),
) -> Result<LoadResult, LoadError> {
    plan.validate()?;
    if let Some(cpu) = plan.cpu {
        sys::pin_to_cpu(cpu).map_err(system("pin the load to its CPU"))?;
    }
    let mut generator = Generator::connect(plan)?;
    on_started();
    generator.generate(stop)?;
    generator.drain()?;
    generator.into_result()
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> LoadError {
    move |source| LoadError::System { action, source }
}

/// What was counted since the end of the warm-up.
struct Window {
    requests: u64,
    errors: LoadErrors,
    latency: LatencyHistogram,
    started: Instant,
    last_response: Instant,
    cpu_at_start: Duration,
}

enum Slot {
    Open(Connection),
    /// Could not be opened; tried again after this time.
    Closed(Instant),
}

/// The intended times of a fixed rate.
struct Schedule {
    started: Instant,
    per_s: f64,
    sent: u64,
    timer: sys::Timer,
}

impl Schedule {
    /// When the next request is to be sent. Counted from the start, so that rounding cannot add up.
    fn next_due(&self) -> Instant {
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
        let offset = Duration::try_from_secs_f64(self.sent as f64 / self.per_s);
        self.started + offset.unwrap_or(Duration::MAX / 4)
    }
}

struct Generator<'a> {
    plan: &'a LoadPlan,
    request: Vec<u8>,
    poll: Poll,
    slots: Vec<Slot>,
    /// Open connections without a request, at a fixed rate.
    idle: Vec<usize>,
    schedule: Option<Schedule>,
    sending: bool,
    window: Window,
}

impl<'a> Generator<'a> {
    fn connect(plan: &'a LoadPlan) -> Result<Self, LoadError> {
        let poll = Poll::new().map_err(system("create an epoll instance"))?;
        let mut slots = Vec::new();
        for index in 0..plan.connections as usize {
            let connection = Connection::open(plan.address, poll.registry(), Token(index))
                .map_err(|source| LoadError::Connect {
                    address: plan.address,
                    source,
                })?;
            slots.push(Slot::Open(connection));
        }
        let schedule = match plan.pace {
            Pace::Closed => None,
            Pace::Rate(per_s) => {
                let timer = sys::Timer::new().map_err(system("create a timer"))?;
                poll.registry()
                    .register(&mut SourceFd(&timer.raw_fd()), TIMER, Interest::READABLE)
                    .map_err(system("watch the timer"))?;
                Some(Schedule {
                    started: Instant::now(),
                    per_s,
                    sent: 0,
                    timer,
                })
            }
        };
        let now = Instant::now();
        let window = Window {
            requests: 0,
            errors: LoadErrors::default(),
            latency: LatencyHistogram::new()
                .ok_or_else(|| system("make a histogram")(io::ErrorKind::InvalidInput.into()))?,
            started: now,
            last_response: now,
            cpu_at_start: thread_cpu()?,
        };
        let idle = (0..slots.len()).rev().collect();
        let request = plan.request_bytes();
        Ok(Self {
            plan,
            request,
            poll,
            slots,
            idle,
            schedule,
            sending: true,
            window,
        })
    }

    fn generate(&mut self, stop: &AtomicBool) -> Result<(), LoadError> {
        let started = Instant::now();
        self.open_window(started)?;
        if let Some(schedule) = &mut self.schedule {
            schedule.started = started;
        }
        let mut warming_up = !self.plan.warm_up.is_zero();
        let end = self
            .plan
            .duration
            .map(|duration| started + self.plan.warm_up + duration);

        self.start_requests(started)?;
        let mut events = Events::with_capacity(self.slots.len() + 1);
        let mut next_check = started + TICK;
        loop {
            self.poll_once(&mut events)?;
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            if warming_up && now >= started + self.plan.warm_up {
                warming_up = false;
                self.open_window(now)?;
            }
            if now >= next_check {
                next_check = now + TICK;
                self.check_slots(now)?;
            }
        }
    }

    fn open_window(&mut self, now: Instant) -> Result<(), LoadError> {
        self.window.requests = 0;
        self.window.errors = LoadErrors::default();
        self.window.latency.clear();
        self.window.started = now;
        self.window.last_response = now;
        self.window.cpu_at_start = thread_cpu()?;
        Ok(())
    }

    fn start_requests(&mut self, now: Instant) -> Result<(), LoadError> {
        if self.schedule.is_some() {
            return self.send_due(now);
        }
        self.idle.clear();
        for index in 0..self.slots.len() {
            self.send(index, now);
        }
        Ok(())
    }

    fn poll_once(&mut self, events: &mut Events) -> Result<(), LoadError> {
        match self.poll.poll(events, Some(TICK)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(source) => return Err(system("wait for events")(source)),
        }
        for event in events.iter() {
            let Token(index) = event.token();
            if event.token() != TIMER {
                if event.is_writable() {
                    self.continue_sending(index);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    self.receive(index, event.is_read_closed() || event.is_error());
                }
            }
        }
        if self.schedule.is_some() && self.sending {
            self.send_due(Instant::now())?;
        }
        Ok(())
    }

    /// Sends every request whose time has come, as far as there are free connections, and sets the
    /// timer for the next one. Those that must wait keep their intended time.
    fn send_due(&mut self, now: Instant) -> Result<(), LoadError> {
        loop {
            let Some(schedule) = &mut self.schedule else {
                return Ok(());
            };
            let due = schedule.next_due();
            if due > now {
                return schedule
                    .timer
                    .arm(due - now)
                    .map_err(system("set the timer"));
            }
            let Some(index) = self.idle.pop() else {
                return Ok(());
            };
            schedule.sent += 1;
            self.send(index, due);
        }
    }

    fn send(&mut self, index: usize, since: Instant) {
        let Some(Slot::Open(connection)) = self.slots.get_mut(index) else {
            return;
        };
        if connection
            .send(&self.request, since, self.poll.registry())
            .is_err()
        {
            self.window.errors.connection += 1;
            self.reopen(index);
        }
    }

    fn continue_sending(&mut self, index: usize) {
        let Some(Slot::Open(connection)) = self.slots.get_mut(index) else {
            return;
        };
        if connection
            .continue_sending(&self.request, self.poll.registry())
            .is_err()
        {
            self.window.errors.connection += 1;
            self.reopen(index);
        }
    }

    fn receive(&mut self, index: usize, until_empty: bool) {
        let Some(Slot::Open(connection)) = self.slots.get_mut(index) else {
            return;
        };
        match connection.receive(until_empty) {
            Received::Partial => {}
            Received::Response(response) => {
                let since = connection.since.take();
                let now = Instant::now();
                let right = self.check_response(index, &response);
                if let (true, Some(since)) = (right, since) {
                    self.window.requests += 1;
                    self.window
                        .latency
                        .record(now.saturating_duration_since(since));
                }
                self.window.last_response = now;
                if response.keep_alive {
                    self.next_request(index, now);
                } else {
                    self.reopen(index);
                }
            }
            Received::ClosedIdle => {
                self.idle.retain(|&other| other != index);
                self.reopen(index);
            }
            Received::Malformed => {
                self.window.errors.protocol += 1;
                self.idle.retain(|&other| other != index);
                self.reopen(index);
            }
            Received::Broken => {
                self.window.errors.connection += 1;
                self.idle.retain(|&other| other != index);
                self.reopen(index);
            }
        }
    }

    /// Whether the response is what the plan expects; counts it as an error when it is not.
    fn check_response(&mut self, index: usize, response: &Response) -> bool {
        let Some(Slot::Open(connection)) = self.slots.get(index) else {
            return false;
        };
        if response.status != self.plan.expect.status {
            self.window.errors.status += 1;
            return false;
        }
        let body = response.body.bytes(connection.received());
        match &self.plan.expect.body {
            Some(expected) if expected.as_bytes() != body => {
                self.window.errors.body += 1;
                false
            }
            _ => true,
        }
    }

    /// Gives a connection that has no request its next one, or puts it aside.
    fn next_request(&mut self, index: usize, now: Instant) {
        if !self.sending {
            return;
        }
        if self.schedule.is_some() {
            self.idle.push(index);
        } else {
            self.send(index, now);
        }
    }

    fn reopen(&mut self, index: usize) {
        let now = Instant::now();
        let opened = Connection::open(self.plan.address, self.poll.registry(), Token(index));
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        match opened {
            Ok(connection) => {
                *slot = Slot::Open(connection);
                self.next_request_later(index);
            }
            Err(_) => *slot = Slot::Closed(now + RECONNECT_PAUSE),
        }
    }

    /// Like `next_request`, but not from within `send`: a server that accepts and then breaks every
    /// connection would otherwise recurse without end. `check_slots` picks the connection up.
    fn next_request_later(&mut self, index: usize) {
        if self.sending && self.schedule.is_some() {
            self.idle.push(index);
        }
    }

    /// Opens closed connections again, gives idle ones of the closed loop a request, and ends
    /// requests that take too long.
    fn check_slots(&mut self, now: Instant) -> Result<(), LoadError> {
        for index in 0..self.slots.len() {
            let (reopen, timed_out, idle) = match self.slots.get(index) {
                Some(Slot::Closed(retry_at)) => (now >= *retry_at, false, false),
                Some(Slot::Open(connection)) => match connection.since {
                    Some(since) => (
                        false,
                        now.saturating_duration_since(since) > RESPONSE_LIMIT,
                        false,
                    ),
                    None => (false, false, true),
                },
                None => continue,
            };
            if timed_out {
                self.window.errors.timeout += 1;
            }
            if reopen || timed_out {
                self.reopen(index);
                if reopen && matches!(self.slots.get(index), Some(Slot::Closed(_))) {
                    self.window.errors.connection += 1;
                }
            } else if idle && self.schedule.is_none() && self.sending {
                self.send(index, now);
            }
        }
        Ok(())
    }

    /// Waits for the responses that are on their way, without sending anything new.
    fn drain(&mut self) -> Result<(), LoadError> {
        self.sending = false;
        let deadline = Instant::now() + DRAIN_LIMIT;
        let mut events = Events::with_capacity(self.slots.len() + 1);
        while self.outstanding() > 0 {
            if Instant::now() >= deadline {
                self.window.errors.timeout += self.outstanding();
                break;
            }
            self.poll_once(&mut events)?;
        }
        Ok(())
    }

    fn outstanding(&self) -> u64 {
        let waiting =
            |slot: &&Slot| matches!(slot, Slot::Open(connection) if connection.since.is_some());
        self.slots.iter().filter(waiting).count() as u64
    }

    fn into_result(self) -> Result<LoadResult, LoadError> {
        let window = &self.window;
        let seconds = window
            .last_response
            .saturating_duration_since(window.started)
            .as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 requests")]
        let req_per_s = if seconds > 0.0 {
            window.requests as f64 / seconds
        } else {
            0.0
        };
        let cpu = thread_cpu()?.saturating_sub(window.cpu_at_start);
        Ok(LoadResult {
            requests: window.requests,
            errors: window.errors,
            seconds,
            req_per_s,
            generator_cpu_us: cpu.as_secs_f64() * 1e6,
            latency: window.latency.summary(),
            unsent: self.unsent(),
        })
    }

    fn unsent(&self) -> u64 {
        let (Some(schedule), Some(duration)) = (&self.schedule, self.plan.duration) else {
            return 0;
        };
        let seconds = (self.plan.warm_up + duration).as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and bounded by the rate limit times the duration"
        )]
        let due = (seconds * schedule.per_s) as u64;
        due.saturating_sub(schedule.sent)
    }
}

fn thread_cpu() -> Result<Duration, LoadError> {
    sys::thread_cpu_time().map_err(system("read the CPU clock of the load"))
}
