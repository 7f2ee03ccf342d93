//! Finds the end of an HTTP/1.1 response in the bytes received so far. Pure: bytes in, verdict out.

/// More than nginx ever sends in one head.
const HEADERS_MAX: usize = 96;
/// A response larger than this is a protocol error, so that a hostile server cannot fill memory.
pub(crate) const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// Where a response ends, when it has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More bytes are needed.
    Partial,
    /// Complete.
    Complete(Response),
    /// Not an HTTP/1.x response, or one that this generator does not accept.
    Malformed,
}

/// One complete response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Body,
    /// Bytes from the start of the buffer to the end of this response.
    pub(crate) length: usize,
    /// Whether the connection stays open for another request.
    pub(crate) keep_alive: bool,
}

/// Where the body lies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// These bytes of the buffer.
    Span(std::ops::Range<usize>),
    /// Put together from chunks.
    Joined(Vec<u8>),
}

impl Body {
    /// The body, given the buffer it was found in.
    pub(crate) fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Span(range) => buffer.get(range.clone()).unwrap_or_default(),
            Self::Joined(bytes) => bytes,
        }
    }
}

/// How the head says that the body ends (RFC 9112, section 6.3).
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

struct Head {
    status: u16,
    length: usize,
    framing: Framing,
    keep_alive: bool,
}

/// Looks for one response at the start of `buffer`. `closed` says that the peer will send no more.
pub(crate) fn parse(buffer: &[u8], closed: bool) -> Progress {
    let head = match parse_head(buffer) {
        Ok(Some(head)) => head,
        Ok(None) if closed => return Progress::Malformed,
        Ok(None) => return Progress::Partial,
        Err(()) => return Progress::Malformed,
    };

    let rest = buffer.get(head.length..).unwrap_or_default();
    let (body, body_length) = match head.framing {
        Framing::Length(length) if rest.len() >= length => {
            (Body::Span(head.length..head.length + length), length)
        }
        Framing::UntilClose if closed => (Body::Span(head.length..buffer.len()), rest.len()),
        Framing::Length(_) if closed => return Progress::Malformed,
        Framing::Length(_) | Framing::UntilClose => return Progress::Partial,
        Framing::Chunked => match join_chunks(rest) {
            Ok(Some((bytes, length))) => (Body::Joined(bytes), length),
            Ok(None) if closed => return Progress::Malformed,
            Ok(None) => return Progress::Partial,
            Err(()) => return Progress::Malformed,
        },
    };

    Progress::Complete(Response {
        status: head.status,
        body,
        length: head.length + body_length,
        keep_alive: head.keep_alive,
    })
}

fn parse_head(buffer: &[u8]) -> Result<Option<Head>, ()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(()),
    };
    let status = response.code.ok_or(())?;
    // An interim response would need a second one after it, and nothing here asks for one.
    if status < 200 {
        return Err(());
    }

    let mut framing = Framing::UntilClose;
    let mut keep_alive = response.version == Some(1);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = decimal(header.value)?;
            // Two different lengths are an attempt at response splitting (RFC 9112, section 6.3).
            if matches!(framing, Framing::Length(other) if other != length) {
                return Err(());
            }
            if !matches!(framing, Framing::Chunked) {
                framing = Framing::Length(length);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if !header.value.eq_ignore_ascii_case(b"chunked") {
                return Err(());
            }
            framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            if header.value.eq_ignore_ascii_case(b"close") {
                keep_alive = false;
            } else if header.value.eq_ignore_ascii_case(b"keep-alive") {
                keep_alive = true;
            }
        }
    }
    if status == 204 || status == 304 {
        framing = Framing::Length(0);
    }
    if matches!(framing, Framing::UntilClose) {
        keep_alive = false;
    }
    Ok(Some(Head {
        status,
        length,
        framing,
        keep_alive,
    }))
}

fn decimal(value: &[u8]) -> Result<usize, ()> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(());
    }
    let length: usize = std::str::from_utf8(value)
        .map_err(drop)?
        .parse()
        .map_err(drop)?;
    if length > RESPONSE_BYTES_MAX {
        Err(())
    } else {
        Ok(length)
    }
}

/// Joins the chunks at the start of `bytes`; also says how many bytes they and the trailer take.
fn join_chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, ()> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let (head, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(()),
        };
        let size = usize::try_from(size).map_err(drop)?;
        if size > RESPONSE_BYTES_MAX {
            return Err(());
        }
        at += head;
        if size == 0 {
            return trailer_end(bytes, at).map(|end| end.map(|end| (body, end)));
        }
        let Some(chunk) = bytes.get(at..at + size) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        at += size;
        match bytes.get(at..at + 2) {
            Some(b"\r\n") => at += 2,
            Some(_) => return Err(()),
            None => return Ok(None),
        }
    }
}

/// The end of the trailer that begins at `at`: an empty line, after any number of fields.
fn trailer_end(bytes: &[u8], mut at: usize) -> Result<Option<usize>, ()> {
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(newline) = memchr::memchr(b'\n', rest) else {
            return Ok(None);
        };
        match rest.get(..newline) {
            Some(b"\r") => return Ok(Some(at + 2)),
            Some(line) if line.ends_with(b"\r") => at += newline + 1,
            _ => return Err(()),
        }
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
