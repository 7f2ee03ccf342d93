use proptest::prelude::*;

use super::*;

fn complete(bytes: &[u8]) -> (u16, Vec<u8>, usize, bool) {
    match parse(bytes, false) {
        Progress::Complete(response) => (
            response.status,
            response.body.bytes(bytes).to_vec(),
            response.length,
            response.keep_alive,
        ),
        other => panic!("not complete: {other:?}"),
    }
}

const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nA: b\r\n\r\n";

#[test]
fn a_body_of_known_length_ends_where_its_length_says() {
    let mut two = PLAIN.to_vec();
    two.extend_from_slice(b"HTTP/1.1 500");
    assert_eq!(complete(&two), (200, b"hello".to_vec(), PLAIN.len(), true));
}

#[test]
fn chunks_are_joined_and_their_trailer_is_skipped() {
    let mut more = CHUNKED.to_vec();
    more.extend_from_slice(b"HTTP");
    assert_eq!(
        complete(&more),
        (200, b"hello".to_vec(), CHUNKED.len(), true)
    );
}

#[test]
fn every_prefix_of_a_response_asks_for_more() {
    for whole in [PLAIN, CHUNKED] {
        for length in 0..whole.len() {
            let prefix = &whole[..length];
            assert_eq!(parse(prefix, false), Progress::Partial, "{length} bytes");
            assert_eq!(
                parse(prefix, true),
                Progress::Malformed,
                "{length} bytes, closed"
            );
        }
    }
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    let bytes = b"HTTP/1.0 200 OK\r\n\r\nabc";
    assert_eq!(parse(bytes, false), Progress::Partial);
    let Progress::Complete(response) = parse(bytes, true) else {
        panic!("not complete")
    };
    assert_eq!(response.body.bytes(bytes), b"abc");
    assert!(!response.keep_alive);
}

#[test]
fn no_content_has_no_body_whatever_its_headers_say() {
    let bytes = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n";
    assert_eq!(complete(bytes).1, b"");
}

#[test]
fn connection_close_is_believed() {
    let bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(!complete(bytes).3);
}

#[test]
fn ambiguous_or_absurd_framing_is_refused() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
    ] {
        assert_eq!(
            parse(bytes, false),
            Progress::Malformed,
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(
        tail in proptest::collection::vec(any::<u8>(), 0..200),
        chunked: bool,
        closed: bool,
    ) {
        let mut bytes = if chunked {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
        } else {
            Vec::new()
        };
        bytes.extend(tail);
        if let Progress::Complete(response) = parse(&bytes, closed) {
            prop_assert!(response.length <= bytes.len());
        }
    }
}
