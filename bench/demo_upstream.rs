//! A tiny upstream for the demo and the bench smoke: answers every request with JSON that names
//! the node, the method, the path and the headers as they arrived.
//!
//! `demo-upstream 127.0.0.1:1980 127.0.0.1:1981` serves one node on each address until it is ended.
//! A thread for each connection: it is here to be read, not to be fast.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A program to look at.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// Longest line of a head or of a chunk's size, in bytes: what most servers bear.
const MAX_LINE: u64 = 8 * 1024;
/// Most header fields of a request.
const MAX_FIELDS: usize = 200;
/// How long a client may be silent.
const IDLE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let addrs: Vec<String> = std::env::args().skip(1).collect();
    if addrs.is_empty() {
        eprintln!("usage: demo-upstream ADDRESS...");
        return ExitCode::from(2);
    }
    let mut nodes = Vec::new();
    for addr in addrs {
        let listener = match TcpListener::bind(&addr) {
            Ok(listener) => listener,
            Err(error) => {
                eprintln!("demo-upstream: cannot listen on {addr}: {error}");
                return ExitCode::FAILURE;
            }
        };
        println!("demo-upstream: node {addr}");
        nodes.push(std::thread::spawn(move || accept(&listener, &addr)));
    }
    for node in nodes {
        let _ = node.join(); // Ends only with the process.
    }
    ExitCode::SUCCESS
}

fn accept(listener: &TcpListener, node: &str) {
    for stream in listener.incoming().flatten() {
        let node = node.to_owned();
        std::thread::spawn(move || {
            let _ = serve(stream, &node); // A client that breaks off ends its own connection only.
        });
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, node: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = Head::read(&mut reader)? {
        request.skip_body(&mut reader)?;
        let body = request.answer(node);
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if request.method != "HEAD" {
            answer.push_str(&body);
        }
        writer.write_all(answer.as_bytes())?;
        if request
            .field("connection")
            .is_some_and(|v| v.eq_ignore_ascii_case("close"))
        {
            break;
        }
    }
    Ok(())
}

/// A request head.
struct Head {
    method: String,
    path: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// The next head; `None` when the client is done.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
        let first = line(reader)?;
        let mut words = first.split_whitespace();
        let (Some(method), Some(path)) = (words.next(), words.next()) else {
            return Ok(None);
        };
        let mut head = Head {
            method: method.into(),
            path: path.into(),
            fields: Vec::new(),
        };
        while head.fields.len() < MAX_FIELDS {
            let text = line(reader)?;
            let Some((name, value)) = text.split_once(':') else {
                return Ok(Some(head));
            };
            head.fields.push((name.to_owned(), value.trim().to_owned()));
        }
        Err(io::Error::other("too many header fields"))
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Reads the body away, so that the next request is found behind it.
    fn skip_body(&self, reader: &mut impl BufRead) -> io::Result<()> {
        if self.field("transfer-encoding").is_none() {
            let length = self.field("content-length").map_or(Ok(0), str::parse);
            return skip(reader, length.map_err(io::Error::other)?);
        }
        loop {
            let size = line(reader)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(io::Error::other)?;
            if size == 0 {
                break;
            }
            skip(reader, size)?;
            line(reader)?; // The line break behind the chunk.
        }
        while !line(reader)?.is_empty() {} // Trailers.
        Ok(())
    }

    fn answer(&self, node: &str) -> String {
        let fields: Vec<String> = self
            .fields
            .iter()
            .map(|(n, v)| format!("    {}: {}", quoted(n), quoted(v)))
            .collect();
        format!(
            "{{\n  \"node\": {},\n  \"method\": {},\n  \"path\": {},\n  \"headers\": {{\n{}\n  }}\n}}\n",
            quoted(node),
            quoted(&self.method),
            quoted(&self.path),
            fields.join(",\n")
        )
    }
}

/// A line without its end; empty at the end of the stream.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader
        .by_ref()
        .take(MAX_LINE)
        .read_until(b'\n', &mut bytes)?;
    if bytes.len() as u64 == MAX_LINE {
        return Err(io::Error::other("line too long"));
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

fn skip(reader: &mut impl BufRead, length: u64) -> io::Result<()> {
    io::copy(&mut reader.by_ref().take(length), &mut io::sink()).map(drop)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
