//! `lockgate explain`.
#![allow(clippy::print_stderr)] // For what goes wrong.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{Asked, Explanation, From, Rules, explain, online, text};
use crate::gateway;
use crate::inspect;
use crate::load::{Purpose, load};
use crate::settings::{Settings, SourceKind};

/// Arguments of `lockgate explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Such as GET.
    method: String,
    /// `http://host:port/path?query`, or a path.
    url: String,
    /// A header as it is sent, `Name: value`. Several may be given.
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The address that the connection comes from; 127.0.0.1 when it is left out.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// The name in the TLS handshake; the URL's host with https.
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// The consumer that the request's credential belongs to: its plugins are merged in.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// A body, for conditions that look into it.
    #[arg(short, long, value_name = "TEXT")]
    data: Option<String>,
    /// The process settings; they say where the routes are.
    #[arg(short, long, default_value = "conf/config.yaml")]
    config: PathBuf,
    /// Asks a running gateway, by its Admin API: `http://127.0.0.1:9180`. Its key comes from
    /// --key-file, else from the environment's LOCKGATE_ADMIN_KEY.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    admin: Option<String>,
    /// A file with the key for the Admin API, such as `data/admin.key`.
    #[arg(long, value_name = "FILE", requires = "admin")]
    key_file: Option<PathBuf>,
    /// A file with the certificate that the Admin API's is signed by, with https.
    #[arg(long, value_name = "FILE", requires = "admin")]
    ca_file: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `Name: value`")?;
    Ok((name.to_owned(), value.trim().to_owned()))
}

/// Runs `lockgate explain`.
pub fn run(args: &Args) -> ExitCode {
    let asked = Asked {
        method: args.method.clone(),
        url: args.url.clone(),
        headers: args.headers.clone(),
        from: args.from.clone(),
        sni: args.sni.clone(),
        consumer: args.consumer.clone(),
        body: args.data.clone(),
    };
    let told = match &args.admin {
        Some(url) => ask(url, args, &asked),
        None => match offline(args, &asked) {
            Ok(told) => told,
            Err(code) => return code,
        },
    };
    match told {
        Ok(told) if args.json => match serde_json::to_string_pretty(&told) {
            Ok(json) => print(&(json + "\n")),
            Err(error) => wrong(&error.to_string()),
        },
        Ok(told) => print(&text::of(&told)),
        Err(text) => wrong(&text),
    }
}

/// Whoever reads may have seen enough (`| head`).
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => wrong(&error.to_string()),
        _ => ExitCode::SUCCESS,
    }
}

fn wrong(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}

fn ask(url: &str, args: &Args, asked: &Asked) -> Result<Explanation, String> {
    let key = match &args.key_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .map_err(|e| format!("{} cannot be read: {e}", path.display()))?
                .trim()
                .to_owned(),
        ),
        None => std::env::var("LOCKGATE_ADMIN_KEY").ok(),
    };
    let body = serde_json::to_vec(asked).map_err(|e| e.to_string())?;
    let answer = online::post(&online::Call {
        url,
        path: super::PATH,
        key: key.as_deref(),
        ca_file: args.ca_file.as_deref(),
        body: &body,
    })?;
    serde_json::from_slice(&answer).map_err(|e| {
        format!("{url} answers with something else than an explanation ({e}): is it the Admin API of lockgate?")
    })
}

/// By what the settings name. Failures to read that are printed here: there may be many.
fn offline(args: &Args, asked: &Asked) -> Result<Result<Explanation, String>, ExitCode> {
    let (settings, _) =
        gateway::settings(&args.config).map_err(|problems| inspect::failed(&[], &problems))?;
    if let Some(why) = out_of_reach(&settings) {
        return Err(wrong(&why));
    }
    let loaded = load(&settings, None, None, Purpose::Looking)
        .map_err(|(problems, _)| inspect::failed(&[], &problems))?;
    for problem in &loaded.rejected {
        eprintln!("warning: not in use: {problem}");
    }
    let rules = Rules::of(&settings).map_err(|e| wrong(&format!("{e:#}")))?;
    let told = explain(&loaded.graph.snapshot(), &rules, asked, From::File);
    Ok(told.map_err(|e| e.to_string()))
}

/// Why the configuration cannot be read from here.
fn out_of_reach(settings: &Settings) -> Option<String> {
    let why = match settings.source {
        SourceKind::Memory => "is in the memory of the process that serves",
        _ => inspect::out_of_sight(settings)?,
    };
    let admin = settings.admin.as_ref().map(|admin| {
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        format!("; ask the running one: --admin {scheme}://{}", admin.listen)
    });
    Some(format!(
        "{} {why}{}",
        settings.source,
        admin.unwrap_or_default()
    ))
}
