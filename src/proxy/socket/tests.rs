//! What the hand-over relies on in Pingora 0.9.1, one behaviour each.

use bytes::{Bytes, BytesMut};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::*;

/// A client's socket, and the other end as Pingora's listener hands it out.
async fn accepted() -> (TcpStream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, near) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.unwrap(), Box::new(L4Stream::from(near.unwrap().0)))
}

async fn session(prefix: &[u8]) -> (TcpStream, ServerSession) {
    let (client, stream) = accepted().await;
    let mut session = ServerSession::new_http1(give(take(stream), &Conn::default()));
    session.set_pipelined_prefix(BytesMut::from(prefix));
    assert!(session.read_request().await.unwrap());
    (client, session)
}

async fn answer(session: &mut ServerSession, length: usize) {
    let mut head = ResponseHeader::build(200, None).unwrap();
    let length = length.to_string();
    head.insert_header("Content-Length", length).unwrap();
    session.write_response_header(Box::new(head)).await.unwrap();
}

#[tokio::test]
async fn a_socket_taken_from_pingora_is_whole() {
    let (mut client, stream) = accepted().await;
    // What came before it was taken is there; what comes later wakes whoever waits.
    client.write_all(b"before").await.unwrap();
    let Link::Plain(mut socket) = take(stream) else {
        panic!("not taken");
    };
    let mut got = [0; 6];
    socket.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"before");
    let later = async {
        tokio::task::yield_now().await;
        client.write_all(b"later!").await.unwrap();
    };
    let (read, ()) = tokio::join!(socket.read_exact(&mut got), later);
    assert_eq!((read.unwrap(), &got), (6, b"later!"));
    // Pingora's descriptor is closed: the client sees the end when this one is.
    drop(socket);
    assert_eq!(client.read(&mut got).await.unwrap(), 0);
}

#[tokio::test]
async fn a_head_that_was_read_is_parsed_without_waiting() {
    let (_client, mut session) = session(b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(session.req_header().uri, "/a?b");
    assert!(session.is_body_empty());
}

#[tokio::test]
async fn a_body_goes_on_from_what_was_read_to_what_comes() {
    let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc";
    let (mut client, mut session) = session(head).await;
    client.write_all(b"def").await.unwrap();
    let mut body = Vec::new();
    while let Some(piece) = session.read_request_body().await.unwrap() {
        body.extend_from_slice(&piece);
    }
    assert_eq!(body, b"abcdef");
}

#[tokio::test]
async fn an_answer_is_with_the_client_when_the_session_ends() {
    let (mut client, mut session) = session(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    session.set_keepalive(Some(0));
    answer(&mut session, 5).await;
    let body = Bytes::from_static(b"hello");
    session.write_response_body(body, true).await.unwrap();
    let (stream, prefix) = session.finish().await.unwrap().unwrap().into_parts();
    assert!(prefix.is_none());
    let mut got = vec![0; 512];
    let n = client.read(&mut got).await.unwrap();
    // Head and body came in one segment: they were buffered together.
    assert!(got[..n].starts_with(b"HTTP/1.1 200") && got[..n].ends_with(b"\r\n\r\nhello"));

    // And the socket is the gateway's again.
    let Some(Link::Plain(mut socket)) = take_back(stream) else {
        panic!("not given back");
    };
    client.write_all(b"next").await.unwrap();
    let mut next = [0; 4];
    socket.read_exact(&mut next).await.unwrap();
    assert_eq!(&next, b"next");
}

#[tokio::test]
async fn a_connection_that_is_not_kept_does_not_come_back() {
    let (mut client, mut session) = session(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    session.set_keepalive(None);
    answer(&mut session, 0).await;
    assert!(session.finish().await.unwrap().is_none());
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert!(got.ends_with(b"\r\n\r\n"));
}

#[tokio::test]
async fn bytes_behind_a_request_end_the_connection_where_pipelining_is_off() {
    for on in [false, true] {
        let two = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /2";
        let (_client, mut session) = session(two).await;
        if let ServerSession::H1(session) = &mut session {
            session.set_pipelining_enabled(on);
        }
        session.set_keepalive(Some(0));
        answer(&mut session, 0).await;
        let kept = session.finish().await.unwrap();
        assert_eq!(kept.is_some(), on);
        if let Some(kept) = kept {
            assert_eq!(kept.into_parts().1.unwrap(), &b"GET /2"[..]);
        }
    }
}

#[tokio::test]
async fn what_the_front_knows_reaches_the_first_request() {
    let (_client, mut session) = session(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    session.set_connection_user_context(Some(Box::new(7u8)));
    let known = session.take_connection_user_context().unwrap();
    assert_eq!(known.downcast_ref(), Some(&7u8));
}

#[tokio::test]
async fn bytes_given_back_are_read_first() {
    let (mut client, stream) = accepted().await;
    client.write_all(b" and more").await.unwrap();
    let mut stream = give_with(take(stream), &Conn::default(), b"preface").unwrap();
    let mut got = [0; 16];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"preface and more");
}

#[tokio::test]
async fn the_client_is_who_it_was_also_after_a_reset() {
    for preface in [false, true] {
        let (client, stream) = accepted().await;
        let conn = Conn {
            peer: client.local_addr().unwrap(),
            local: client.peer_addr().unwrap(),
            ..Conn::default()
        };
        // Closed with nothing more to say: a reset, after which the kernel knows no peer.
        socket2::SockRef::from(&client)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(client);
        let link = take(stream);
        if let Link::Plain(socket) = &link {
            while socket.peer_addr().is_ok() {
                tokio::task::yield_now().await;
            }
        }
        let stream = if preface {
            give_with(link, &conn, b"").unwrap()
        } else {
            give(link, &conn)
        };
        let digest = stream.get_socket_digest().unwrap();
        let peer = digest.peer_addr().and_then(|a| a.as_inet());
        let local = digest.local_addr().and_then(|a| a.as_inet());
        assert_eq!((peer, local), (Some(&conn.peer), Some(&conn.local)));
    }
}
