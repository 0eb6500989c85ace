package scim

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/input"
	"github.com/holdfast-dev/holdfast/internal/signin/scim/document"
)

// The limits of the protocol. Directories send one request after the other, so they rarely wait.
const (
	maxBody      = 1 << 20 // bytes of a request
	maxGroupBody = 8 << 20 // bytes of a request about a group, which can have 20,000 members
	maxRunning   = 16      // maximum number of running requests
	maxPerTenant = 4       // maximum number of running requests of one directory
	maxQueued    = 32      // requests of one directory that run or wait
	longestWait  = 10 * time.Second
	usedNoted    = time.Minute // shortest time between two records of the use of a token
)

const contentType = "application/scim+json; charset=utf-8"

// A client is the directory that sends a request.
type client struct {
	provider resource.IdentityProvider
	digest   []byte // digest of its token
}

// Handler serves the protocol below Prefix.
func (s *Service) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor := resource.Actor{RequestID: rand.Text(), Remote: input.Remote(r)}
		w.Header().Set("X-Request-Id", actor.RequestID)
		r = r.WithContext(resource.WithActor(r.Context(), actor))
		if err := s.serve(w, r); err != nil {
			s.writeError(w, r, err)
		}
	})
}

// serve authenticates a request before it says anything about the address.
func (s *Service) serve(w http.ResponseWriter, r *http.Request) error {
	segment, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	c, err := s.authenticate(r, segment)
	if err != nil {
		return err
	}
	actor := resource.ActorFrom(r.Context())
	actor.Subject = c.provider.UID
	r = r.WithContext(resource.WithActor(r.Context(), actor))
	release, err := s.limiter.Acquire(r.Context(), resource.Tenant(c.provider.UID.Root()))
	if err != nil {
		return err
	}
	defer release()
	return s.route(w, r, c, strings.Trim(rest, "/"))
}

func errToken() error {
	return &document.Error{Status: http.StatusUnauthorized, Detail: "The token is not valid for this address."}
}

// authenticate returns the directory that has the token of a request and the address with the segment. The error does
// not depend on whether the provider exists.
func (s *Service) authenticate(r *http.Request, segment string) (c client, _ error) {
	scheme, text, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") || len(r.Header.Values("Authorization")) != 1 {
		return c, errToken()
	}
	c.digest = digestOf(strings.TrimSpace(text))
	p, err := s.iam.ProviderAt(r.Context(), segment)
	if errors.Is(err, fault.NotFound) {
		return c, errToken()
	}
	if err != nil {
		return c, err
	}
	d, err := s.store.Directory(r.Context(), p.UID)
	if err != nil {
		return c, err
	}
	if !accepts(d, c.digest, s.now()) {
		return c, errToken()
	}
	if used := s.now(); used.Sub(d.UsedTime) >= usedNoted {
		if err := s.store.NoteUse(r.Context(), p.UID, used); err != nil {
			return c, err
		}
	}
	c.provider = p
	return c, usable(p, d)
}

// accepts reports whether a directory has a token with this digest that is valid now.
func accepts(d resource.Directory, digest []byte, now time.Time) bool {
	valid := func(stored []byte, expires time.Time) bool {
		return stored != nil && subtle.ConstantTimeCompare(stored, digest) == 1 &&
			(expires.IsZero() || now.Before(expires))
	}
	return valid(d.Digest, d.ExpireTime) || valid(d.PreviousDigest, d.PreviousExpireTime)
}

// usable returns an error with status 403 if a directory cannot be used although the token is valid.
func usable(p resource.IdentityProvider, d resource.Directory) error {
	switch {
	case !d.Enabled:
		return &document.Error{Status: http.StatusForbidden, Detail: "SCIM is not enabled for this identity provider."}
	case p.Trusted:
		return &document.Error{Status: http.StatusForbidden, Detail: fault.Explain(errTrusted())}
	}
	return nil
}

// route calls the operation for the rest of the path after the provider.
func (s *Service) route(w http.ResponseWriter, r *http.Request, c client, rest string) error {
	base := s.Endpoint(c.provider.UID)
	kind, id, _ := strings.Cut(rest, "/")
	limit := int64(maxBody)
	if kind == "Groups" {
		limit = maxGroupBody
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	switch kind {
	case "Users":
		if id == ".search" {
			return s.search(w, r, s.users(c.provider.UID))
		}
		return s.serveUsers(w, r, c, id)
	case "Groups":
		if id == ".search" {
			return s.search(w, r, s.groups(c.provider.UID))
		}
		return s.serveGroups(w, r, c, id)
	case ".search":
		return s.search(w, r, s.users(c.provider.UID))
	case "ServiceProviderConfig":
		return describe(w, r, id, nil, document.Config(base))
	case "ResourceTypes":
		return describe(w, r, id, document.ResourceTypes(base), nil)
	case "Schemas":
		return describe(w, r, id, document.Schemas(base), nil)
	case "Me", "Bulk":
		return &document.Error{Status: http.StatusNotImplemented, Detail: "This service does not support /" + kind + "."}
	}
	return errNothing()
}

func errNothing() error {
	return &document.Error{Status: http.StatusNotFound, Detail: "There is no such resource."}
}

// describe writes a document about this service: one, or one of a list, or the list.
func describe(
	w http.ResponseWriter, r *http.Request, id string, list []document.Object, one document.Object,
) error {
	if err := allow(w, r, http.MethodGet); err != nil {
		return err
	}
	if r.URL.Query().Has("filter") { // RFC 7644, section 4
		return &document.Error{Status: http.StatusForbidden, Detail: "This resource does not support filters."}
	}
	if one != nil && id == "" {
		return write(w, http.StatusOK, one)
	}
	if id == "" {
		return write(w, http.StatusOK, listOf(list, len(list), 1))
	}
	for _, o := range list {
		if strings.EqualFold(document.Text(o, "id"), id) {
			return write(w, http.StatusOK, o)
		}
	}
	return errNothing()
}

func listOf(resources []document.Object, total, start int) document.Object {
	if resources == nil {
		resources = []document.Object{}
	}
	return document.Object{
		"schemas": []string{document.ListSchema}, "totalResults": total, "startIndex": start,
		"itemsPerPage": len(resources), "Resources": resources,
	}
}

// allow returns an error unless the request has one of the methods.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) error {
	for _, m := range methods {
		if r.Method == m {
			return nil
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return &document.Error{Status: http.StatusMethodNotAllowed,
		Detail: "This address supports " + strings.Join(methods, ", ") + "."}
}

// readBody reads the JSON object in the body of a request.
func readBody(r *http.Request) (document.Object, error) {
	if text := r.Header.Get("Content-Type"); text != "" {
		media, _, err := mime.ParseMediaType(text)
		if err != nil || media != "application/scim+json" && media != "application/json" {
			return nil, &document.Error{Status: http.StatusUnsupportedMediaType,
				Detail: "The body must be application/scim+json or application/json."}
		}
	}
	body, err := io.ReadAll(r.Body)
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &document.Error{Status: http.StatusRequestEntityTooLarge,
			Detail: "The body has more than " + strconv.FormatInt(big.Limit>>10, 10) + " KiB."}
	}
	if err != nil {
		return nil, document.Bad(document.InvalidSyntax, "The body cannot be read.")
	}
	return document.Parse(body)
}

func write(w http.ResponseWriter, status int, o document.Object) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has left if this fails
	return nil
}

// writeError writes an error in the form of RFC 7644, section 3.12.
func (s *Service) writeError(w http.ResponseWriter, r *http.Request, err error) {
	refusal := refusalOf(err)
	if refusal.Status == http.StatusInternalServerError {
		s.cfg.Log.ErrorContext(r.Context(), "SCIM request failed", "method", r.Method, "path", r.URL.Path, "err", err,
			"request", resource.ActorFrom(r.Context()).RequestID)
	}
	switch refusal.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="SCIM"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds := int(max(fault.From(err).RetryIn, time.Second) / time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	o := document.Object{
		"schemas": []string{document.ErrorSchema}, "status": strconv.Itoa(refusal.Status), "detail": refusal.Detail,
	}
	if refusal.Type != "" {
		o["scimType"] = refusal.Type
	}
	_ = write(w, refusal.Status, o) // o can be encoded
}

// refusalOf returns an error in the terms of the protocol.
func refusalOf(err error) *document.Error {
	if refusal, ok := errors.AsType[*document.Error](err); ok {
		return refusal
	}
	statuses := map[fault.Code]int{
		fault.NotFound: http.StatusNotFound, fault.Aborted: http.StatusConflict,
		fault.FailedPrecondition: http.StatusConflict, fault.ResourceExhausted: http.StatusTooManyRequests,
		fault.Unavailable: http.StatusServiceUnavailable, fault.DeadlineExceeded: http.StatusServiceUnavailable,
	}
	f := fault.From(err)
	status, ok := statuses[f.Code]
	if !ok {
		return &document.Error{Status: http.StatusInternalServerError, Detail: "The request failed."}
	}
	return &document.Error{Status: status, Detail: fault.Explain(err)}
}
