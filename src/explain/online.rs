//! One request to the Admin API of a running gateway, for commands.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod};

/// To connect, and between two reads: the gateway's own limit, and the way there and back.
const PATIENCE: Duration = Duration::from_secs(40);
/// The longest answer that is read: a plan says before and after of a whole configuration.
const MAX_ANSWER: u64 = 256 << 20;

/// A request.
pub(crate) struct Call<'a> {
    /// Such as `http://127.0.0.1:9180`.
    pub(crate) url: &'a str,
    pub(crate) path: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) ca_file: Option<&'a Path>,
    /// JSON.
    pub(crate) body: &'a [u8],
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Posts it; gives the body of a good answer.
///
/// # Errors
/// In words, what went wrong or was answered.
pub(super) fn post(call: &Call<'_>) -> Result<Vec<u8>, String> {
    let (status, body) = send("POST", call)?;
    if status == 200 {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    Err(format!("{}: {status} {}", call.url, text.trim()))
}

/// Sends it; gives the status and the body of the answer.
///
/// # Errors
/// In words, why there is none.
pub(crate) fn send(method: &str, call: &Call<'_>) -> Result<(u16, Vec<u8>), String> {
    let (tls, authority) = match call.url.split_once("://") {
        Some(("http", rest)) => (false, rest.trim_end_matches('/')),
        Some(("https", rest)) => (true, rest.trim_end_matches('/')),
        _ => return Err(format!("{} is not http://host:port", call.url)),
    };
    if authority.is_empty() || authority.contains(['/', '?', '#', '@', '\r', '\n', ' ']) {
        return Err(format!("{} is not http://host:port", call.url));
    }
    if call.key.is_some_and(|key| key.contains(['\r', '\n'])) {
        return Err("the key has a line end in it".to_owned());
    }
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", call.url);
    let mut stream = connect(authority, tls, call.ca_file).map_err(|e| failed(&e))?;
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n",
        call.path,
        call.body.len()
    );
    if let Some(key) = call.key {
        head.push_str(&format!("X-API-KEY: {key}\r\n"));
    }
    head.push_str("\r\n");
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(call.body))
        .and_then(|()| stream.flush());
    sent.map_err(|e| failed(&e))?;
    let mut answer = Vec::new();
    let read = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    // Some ends are rough; whether the answer is whole shows by itself.
    if let Err(error) = read
        .map(|_| ())
        .or_else(|e| if answer.is_empty() { Err(e) } else { Ok(()) })
    {
        return Err(failed(&error));
    }
    let (status, body) = parts(&answer).ok_or_else(|| failed(&"the answer is not HTTP"))?;
    Ok((status, body.to_vec()))
}

fn connect(authority: &str, tls: bool, ca: Option<&Path>) -> Result<Box<dyn Stream>, String> {
    let port = if tls { 443 } else { 80 };
    let bare = |host: &str| {
        host.trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned()
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, digits)) if !authority.ends_with(']') => {
            let port = digits
                .parse()
                .map_err(|_| format!("`{digits}` is no port"))?;
            (bare(host), port)
        }
        _ => (bare(authority), port),
    };
    let addresses = (host.as_str(), port).to_socket_addrs();
    let mut last = "the name has no address".to_owned();
    for address in addresses.map_err(|e| e.to_string())? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                let limited = stream
                    .set_read_timeout(Some(PATIENCE))
                    .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
                limited.map_err(|e| e.to_string())?;
                return if tls {
                    secured(&host, stream, ca)
                } else {
                    Ok(Box::new(stream))
                };
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

fn secured(host: &str, stream: TcpStream, ca: Option<&Path>) -> Result<Box<dyn Stream>, String> {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(|e| e.to_string())?;
    if let Some(path) = ca {
        builder
            .set_ca_file(path)
            .map_err(|e| format!("{} cannot be used: {e}", path.display()))?;
    }
    let stream = builder.build().connect(host, stream);
    Ok(Box::new(stream.map_err(|e| e.to_string())?))
}

/// The status and the body of an answer that ends with its connection.
fn parts(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = memchr::memmem::find(answer, b"\r\n\r\n")?;
    let line = std::str::from_utf8(answer.split(|b| *b == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))?;
    Some((words.next()?.parse().ok()?, &answer[end + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let check = |text: &str, expected: Option<(u16, &str)>| {
            let expected = expected.map(|(status, body)| (status, body.as_bytes()));
            assert_eq!(parts(text.as_bytes()), expected, "{text}");
        };
        check("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", Some((200, "body")));
        check("HTTP/1.0 401\r\n\r\n", Some((401, "")));
        check("SSH-2.0\r\n\r\n", None);
        check("HTTP/1.1 200 OK\r\n", None);
        check("", None);
    }

    #[test]
    fn only_addresses_of_a_listener_are_taken() {
        for url in [
            "127.0.0.1:9180",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://u@h",
        ] {
            let call = Call {
                url,
                path: "/",
                key: None,
                ca_file: None,
                body: b"",
            };
            let error = post(&call).unwrap_err();
            assert!(error.ends_with("is not http://host:port"), "{error}");
        }
    }
}
