//! The closed lists of names.

/// Variables that always have the same text here.
pub(super) const FIXED: &[(&str, &str)] = &[
    // Counters and names that the AI plugins of APISIX fill in; these are its initial values.
    ("llm_completion_tokens", "0"),
    ("llm_model", ""),
    ("llm_prompt_tokens", "0"),
    ("llm_time_to_first_token", "0"),
    ("request_llm_model", ""),
    ("request_type", "traditional_http"),
    // A connection's second request is never read before the first is answered.
    ("pipe", "."),
    // The name of nginx's catch-all server, in which APISIX's routes live.
    ("server_name", "_"),
];

/// Request headers before the gateway and its plugins changed them.
pub(super) const ORIGINAL: &[(&str, &str)] = &[
    ("original_forwarded", "Forwarded"),
    ("original_x_forwarded_for", "X-Forwarded-For"),
    ("original_x_forwarded_host", "X-Forwarded-Host"),
    ("original_x_forwarded_port", "X-Forwarded-Port"),
    ("original_x_forwarded_proto", "X-Forwarded-Proto"),
];

/// Names that APISIX and nginx know and that never have a value here: what they are about does not
/// exist in this gateway, or a plugin that is not there would set them.
pub(super) const NIL: &[&str] = &[
    "cookie",
    "mqtt_client_id",
    "opentelemetry_context_traceparent",
    "opentelemetry_span_id",
    "opentelemetry_trace_id",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_rewrite_regex_uri_captures",
    "resp_body",
    "ssl_client_cert",
    "ssl_client_raw_cert",
    "ssl_session_id",
    "ssl_session_reused",
    "upstream_bytes_sent",
    "upstream_cache_status",
    "zipkin_context_traceparent",
    "zipkin_span_id",
    "zipkin_trace_id",
];

// A macro, so that each name stands beside its variant and nowhere else.
macro_rules! known {
    ($($variant:ident $($name:literal)|+),+ $(,)?) => {
        /// A variable of the closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Known { $($variant),+ }
        impl Known {
            pub(super) fn parse(name: &str) -> Option<Known> {
                Some(match name { $($($name)|+ => Known::$variant,)+ _ => return None })
            }
            #[cfg(test)]
            pub(super) const NAMES: &[&str] = &[$($($name),+),+];
        }
    };
}

known! {
    Args "args" | "query_string",
    BalancerIp "balancer_ip",
    BalancerPort "balancer_port",
    BodyBytesSent "body_bytes_sent",
    BytesSent "bytes_sent",
    Connection "connection",
    ConnectionRequests "connection_requests",
    ConsumerGroupId "consumer_group_id",
    ConsumerName "consumer_name",
    ContentLength "content_length",
    ContentType "content_type",
    Host "host",
    Hostname "hostname",
    Http2 "http2",
    HttpHost "http_host",
    Https "https",
    IsArgs "is_args",
    Method "method" | "request_method",
    Msec "msec",
    NginxVersion "nginx_version",
    Origin "origin",
    Pid "pid",
    ProxyAddXForwardedFor "proxy_add_x_forwarded_for",
    RateLimitDimension "rate_limit_dimension",
    RateLimitKey "rate_limit_key",
    RateLimitLimit "rate_limit_limit",
    RateLimitRemaining "rate_limit_remaining",
    RateLimitReset "rate_limit_reset",
    RateLimitRule "rate_limit_rule",
    RateLimitingInfo "rate_limiting_info",
    Reason "reason",
    RealipRemoteAddr "realip_remote_addr",
    RealipRemotePort "realip_remote_port",
    RealRequestUri "real_request_uri",
    // The binary form would not survive as text; it is only good as a key, and so is this.
    RemoteAddr "remote_addr" | "binary_remote_addr",
    RemotePort "remote_port",
    RemoteUser "remote_user",
    Request "request" | "request_line",
    RequestCompletion "request_completion",
    RequestId "request_id" | "apisix_request_id",
    RequestLength "request_length",
    RequestTime "request_time",
    RequestUri "request_uri",
    RouteId "route_id",
    RouteName "route_name",
    Scheme "scheme",
    ServerAddr "server_addr",
    ServerPort "server_port",
    ServerProtocol "server_protocol",
    ServiceId "service_id",
    ServiceName "service_name",
    SslAlpn "ssl_alpn_protocol",
    SslCipher "ssl_cipher",
    SslClientFingerprint "ssl_client_fingerprint",
    SslClientIssuer "ssl_client_i_dn",
    SslClientSerial "ssl_client_serial",
    SslClientSubject "ssl_client_s_dn",
    SslClientVerify "ssl_client_verify",
    SslProtocol "ssl_protocol",
    SslServerName "ssl_server_name",
    Status "status",
    TimeIso8601 "time_iso8601",
    TimeLocal "time_local",
    UpstreamAddr "upstream_addr",
    UpstreamConnectTime "upstream_connect_time",
    UpstreamHeaderTime "upstream_header_time",
    UpstreamHost "upstream_host",
    UpstreamReceived "upstream_bytes_received" | "upstream_response_length",
    UpstreamResponseTime "upstream_response_time" | "apisix_upstream_response_time",
    UpstreamScheme "upstream_scheme",
    UpstreamStatus "upstream_status",
    UpstreamUnresolvedHost "upstream_unresolved_host",
    UpstreamUri "upstream_uri",
    Uri "uri" | "document_uri",
}

impl Known {
    pub(super) fn needs_response(self) -> bool {
        use Known::{
            BodyBytesSent, BytesSent, Origin, Reason, RequestCompletion, Status,
            UpstreamConnectTime, UpstreamHeaderTime, UpstreamReceived, UpstreamResponseTime,
            UpstreamStatus,
        };
        matches!(
            self,
            BodyBytesSent
                | BytesSent
                | Origin
                | Reason
                | RequestCompletion
                | Status
                | UpstreamConnectTime
                | UpstreamHeaderTime
                | UpstreamReceived
                | UpstreamResponseTime
                | UpstreamStatus
        )
    }
}
