//! One keep-alive connection: bytes out, a response in. What is sent when, and what a response should be, is not decided here.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Token};

use super::response::{self, Progress, RESPONSE_BYTES_MAX, Response};

/// Loopback answers at once; anything slower than this is down for our purpose.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
const BUFFER_BYTES_START: usize = 16 << 10;

/// One keep-alive connection, with at most one request on its way.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: mio::net::TcpStream,
    token: Token,
    buffer: Vec<u8>,
    filled: usize,
    unwritten_from: usize,
    awaiting_writable: bool,
    /// When the request on its way was sent, or was to be sent.
    pub(crate) since: Option<Instant>,
}

/// What reading brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// The response is not complete.
    Partial,
    /// A complete response; its bytes are in [`Connection::received`] until the next request.
    Response(Response),
    /// The peer closed a connection that had no request on its way.
    ClosedIdle,
    /// Bytes that are no response, or more of them than one response.
    Malformed,
    /// The connection broke.
    Broken,
}

impl Connection {
    /// Opens a connection; blocks until it stands, one second at most.
    pub(crate) fn open(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        registry.register(&mut stream, token, Interest::READABLE)?;
        Ok(Self {
            stream,
            token,
            buffer: vec![0; BUFFER_BYTES_START],
            filled: 0,
            unwritten_from: 0,
            awaiting_writable: false,
            since: None,
        })
    }

    /// Starts sending `request`, whose latency counts from `since`.
    pub(crate) fn send(
        &mut self,
        request: &[u8],
        since: Instant,
        registry: &Registry,
    ) -> io::Result<()> {
        self.filled = 0;
        self.unwritten_from = 0;
        self.since = Some(since);
        self.continue_sending(request, registry)
    }

    /// Sends what the kernel would not take before.
    pub(crate) fn continue_sending(
        &mut self,
        request: &[u8],
        registry: &Registry,
    ) -> io::Result<()> {
        if self.since.is_none() {
            return Ok(());
        }
        while let Some(rest) = request
            .get(self.unwritten_from..)
            .filter(|rest| !rest.is_empty())
        {
            match self.stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.unwritten_from += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.await_writable(true, registry);
                }
                Err(error) => return Err(error),
            }
        }
        self.await_writable(false, registry)
    }

    fn await_writable(&mut self, awaiting: bool, registry: &Registry) -> io::Result<()> {
        if awaiting == self.awaiting_writable {
            return Ok(());
        }
        self.awaiting_writable = awaiting;
        let interest = if awaiting {
            Interest::READABLE.add(Interest::WRITABLE)
        } else {
            Interest::READABLE
        };
        registry.reregister(&mut self.stream, self.token, interest)
    }

    /// Reads what has arrived. `until_empty` asks for reading on after a short read, which is needed
    /// only when the peer has closed: the readiness is edge-triggered, and the end of the stream
    /// brings no edge of its own when it came together with the data.
    pub(crate) fn receive(&mut self, until_empty: bool) -> Received {
        if self.since.is_none() {
            // What the buffer holds is the last response, and that has been dealt with.
            self.filled = 0;
        }
        let closed = match self.fill(until_empty) {
            Ok(closed) => closed,
            Err(_) => return Received::Broken,
        };
        if self.since.is_none() {
            return match (self.filled, closed) {
                (0, true) => Received::ClosedIdle,
                (0, false) => Received::Partial,
                _ => Received::Malformed,
            };
        }
        if self.filled == 0 {
            return if closed {
                Received::Broken
            } else {
                Received::Partial
            };
        }
        match response::parse(self.received(), closed) {
            Progress::Partial if self.filled >= RESPONSE_BYTES_MAX => Received::Malformed,
            Progress::Partial => Received::Partial,
            Progress::Malformed if closed => Received::Broken,
            Progress::Malformed => Received::Malformed,
            Progress::Complete(response) if response.length < self.filled => Received::Malformed,
            Progress::Complete(mut response) => {
                response.keep_alive &= !closed;
                Received::Response(response)
            }
        }
    }

    /// The bytes received since the request was sent.
    pub(crate) fn received(&self) -> &[u8] {
        self.buffer.get(..self.filled).unwrap_or_default()
    }

    /// Reads into the buffer; true when the peer has closed.
    fn fill(&mut self, until_empty: bool) -> io::Result<bool> {
        loop {
            if self.filled == self.buffer.len() {
                if self.filled >= RESPONSE_BYTES_MAX {
                    return Ok(false);
                }
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let Some(space) = self.buffer.get_mut(self.filled..) else {
                return Ok(false);
            };
            let room = space.len();
            match self.stream.read(space) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.filled += count;
                    if count < room && !until_empty {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
