package api

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/api/v2/vulnapi"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store/access"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/format"
)

// A document writes the body of a download and sets its headers.
type document func(ctx context.Context, r *http.Request, params map[string]string, h http.Header, w io.Writer) error

const (
	downloadTime   = time.Hour // time limit of a download
	downloadBuffer = 256 << 10
)

// download serves a document at a path. The chain treats the request as a call of
// ExportAdvisories.
func (g *gateway) download(path string, write document) {
	const method = "/holdfast.advisories.v1.AdvisoryReadingService/ExportAdvisories"
	info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
	g.handle(http.MethodGet, path, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		ctx, cancel := context.WithTimeout(withPassword(r), downloadTime)
		defer cancel()
		out := &startedWriter{ResponseWriter: w}
		// An error before the first flush can still be sent as the answer.
		buffered := bufio.NewWriterSize(out, downloadBuffer)
		serve := func(_ any, s grpc.ServerStream) error {
			out.ctx = s.Context()
			if err := write(s.Context(), r, params, w.Header(), buffered); err != nil {
				return err
			}
			return buffered.Flush()
		}
		err := g.local.interceptStream(nil, &eventStream{r: r.WithContext(ctx)}, info, serve)
		switch {
		case err == nil:
		case out.started:
			panic(http.ErrAbortHandler) // shows the client that the document is incomplete
		default:
			w.Header().Del("Content-Disposition")
			g.fail(w, r, status.Convert(err))
		}
	})
}

// A startedWriter writes the body of a download until the caller loses access. It records whether a part of the body
// was written.
type startedWriter struct {
	http.ResponseWriter
	ctx     context.Context // context of the admitted call
	started bool
}

// Write splits large buffers, because the writers of some formats send the whole document in one call.
func (w *startedWriter) Write(b []byte) (sent int, err error) {
	for sent < len(b) && err == nil {
		if err := access.Recheck(w.ctx); err != nil {
			return sent, err
		}
		w.started = true
		var n int
		n, err = w.ResponseWriter.Write(b[sent:min(sent+downloadBuffer, len(b))])
		sent += n
	}
	return sent, err
}

// withPassword returns the context of a request. A password of basic authentication
// becomes the token, for programs that support no other authentication.
func withPassword(r *http.Request) context.Context {
	o := originOf(r.Context())
	if _, password, ok := r.BasicAuth(); ok && password != "" {
		o.token, o.err = password, nil
	}
	return context.WithValue(r.Context(), originKey{}, &o)
}

// exportOverHTTP writes the advisories that pass the filters of the query.
func (a *API) exportOverHTTP(
	ctx context.Context, r *http.Request, _ map[string]string, h http.Header, w io.Writer,
) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault.Field("query", "is malformed")
	}
	to, zip := format.Format(query.Get("format")), query.Get("zip") == "true"
	query.Del("format")
	query.Del("zip")
	in := &vulnpb.ListAdvisoriesRequest{}
	if err := readQuery(query.Encode(), binding{input: in.ProtoReflect().Descriptor()}, nil, in); err != nil {
		return err
	}
	name, contentType := "advisories.json", "application/json"
	if zip {
		name, contentType = "advisories.zip", "application/zip"
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	return a.advisory.Export(ctx, vulnapi.AdvisoryFilter(in), to, format.Options{Zip: zip}, w)
}

// secdbOverHTTP writes the advisories about packages in a group and its subgroups, in the
// format that distributions publish for scanners.
func (a *API) secdbOverHTTP(
	ctx context.Context, _ *http.Request, params map[string]string, h http.Header, w io.Writer,
) error {
	group, err := resource.ParseUID("group", strings.TrimSuffix(params["group"], "/security.json"))
	if err != nil {
		return err
	}
	f := vuln.AdvisoryFilter{UIDs: resource.UIDFilter{DescendantsOf: group}, ArtifactTypes: []string{"apk"}}
	h.Set("Content-Type", "application/json")
	return a.advisory.Export(ctx, f, "secdb", format.Options{URLPrefix: a.cfg.Audience}, w)
}
