//! The connection to one server of etcd.
//!
//! The library's own lets the kernel hold small packets back (Nagle's algorithm): every request waited
//! some 40 ms for the acknowledgement of the one before. It also reads one certificate of a chain.

use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use etcd_client::{BalancedChannelBuilder, Channel};
use http::{Request, Response, Uri};
use hyper_openssl::client::legacy::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use openssl::ssl::{SslConnector, SslConnectorBuilder, SslFiletype, SslMethod, SslVerifyMode};
use tokio::sync::{mpsc, watch};
use tonic::body::Body;
use tonic::transport::channel::Change;
use tonic::transport::{Channel as Connection, Endpoint};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::settings::EtcdTls;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// HTTP/2 by ALPN: etcd speaks nothing else to its clients.
const ALPN: &[u8] = b"\x02h2";

/// How a server is connected to. Each client gets a clone.
#[derive(Clone)]
pub(super) struct Transport {
    connector: HttpsConnector<HttpConnector>,
}

impl Transport {
    /// With TLS where an address says `https`.
    ///
    /// # Errors
    /// When a file cannot be read or is not what it should be.
    pub(super) fn new(tls: &EtcdTls) -> Result<Transport, BoxError> {
        let mut plain = HttpConnector::new();
        // It is given addresses of both kinds.
        plain.enforce_http(false);
        plain.set_nodelay(true);
        let connector = HttpsConnector::with_connector(plain, secured(tls)?)?;
        Ok(Transport { connector })
    }
}

fn secured(tls: &EtcdTls) -> Result<SslConnectorBuilder, BoxError> {
    let failed = |path: &Path, e: openssl::error::ErrorStack| format!("{}: {e}", path.display());
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_alpn_protos(ALPN)?;
    if let Some(ca) = &tls.ca {
        builder.set_ca_file(ca).map_err(|e| failed(ca, e))?;
    }
    if let Some((cert, key)) = &tls.cert {
        let chain = builder.set_certificate_chain_file(cert);
        chain.map_err(|e| failed(cert, e))?;
        let key_read = builder.set_private_key_file(key, SslFiletype::PEM);
        key_read.map_err(|e| failed(key, e))?;
    }
    if tls.insecure {
        builder.set_verify(SslVerifyMode::NONE);
    }
    Ok(builder)
}

impl BalancedChannelBuilder for Transport {
    type Error = etcd_client::Error;

    fn balanced_channel(
        self,
        _: usize,
    ) -> Result<(Channel, mpsc::Sender<Change<Uri, Endpoint>>), Self::Error> {
        // The library tells of the one server it was given, at once.
        let (tell, mut told) = mpsc::channel(1);
        let (connect, connected) = watch::channel(None);
        // Ends with the client, which keeps the other end.
        tokio::spawn(async move {
            while let Some(change) = told.recv().await {
                if let Change::Insert(_, endpoint) = change {
                    let endpoint: Endpoint = endpoint;
                    let connector = self.connector.clone();
                    connect.send_replace(Some(endpoint.connect_with_connector_lazy(connector)));
                }
            }
        });
        let server = Server { connected };
        Ok((Channel::Custom(BoxCloneSyncService::new(server)), tell))
    }
}

/// The server, once the library has told of it.
#[derive(Clone)]
struct Server {
    connected: watch::Receiver<Option<Connection>>,
}

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each request waits for the connection within its own time.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut connected = self.connected.clone();
        Box::pin(async move {
            let known = connected.wait_for(Option::is_some).await?.clone();
            let server = known.ok_or("the connection is gone")?;
            Ok(server.oneshot(request).await?)
        })
    }
}
