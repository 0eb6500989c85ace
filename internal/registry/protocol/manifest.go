package protocol

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/events/denials"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/oci"
	"github.com/holdfast-dev/holdfast/internal/registry/registrydb"
	"github.com/holdfast-dev/holdfast/internal/registry/upload"
)

const (
	maxTags = 100 // largest number of tags in one push
)

func (r *Registry) getManifest(w http.ResponseWriter, req *http.Request, t target) error {
	if err := oci.CheckReference(t.reference); err != nil {
		return err
	}
	m, err := r.readManifest(req.Context(), t)
	source, failed := r.mirror.SourceOf(req.Context(), t.group, t.name)
	if failed != nil {
		return failed
	}
	if source != nil {
		m, err = r.updateManifest(w, req, &t, source, m, err)
	}
	if err != nil {
		return r.unknownManifest(t, err)
	}
	if err := r.passGate(req.Context(), t, m); err != nil {
		return err
	}
	if setManifest(w, req, m) && req.Method == http.MethodGet {
		if r.config.CountPull != nil {
			if err := r.config.CountPull(req.Context(), t.repo, t.public); err != nil {
				return err
			}
		}
		pull := registry.Pull{Digest: m.Digest, Tag: oci.TagOf(t.reference), Time: r.config.Now()}
		r.pulls.Add(req, t.repo, t.public, pull)
		r.config.Metrics.Pulls.Add(1)
		_, _ = w.Write(m.Body)
	}
	return nil
}

// passGate returns a Problem if a rule refuses the pull of a manifest. It never refuses HEAD, because clients that
// push use HEAD to find out whether a manifest exists.
func (r *Registry) passGate(ctx context.Context, t target, m registry.Manifest) error {
	if r.config.Gate == nil || t.method != http.MethodGet {
		return nil
	}
	why, err := r.config.Gate.Check(ctx, t.repo, m, t.public)
	if err != nil || why == "" {
		return err
	}
	r.config.Metrics.RuleRefused.Add(1)
	if actor := resource.ActorFrom(ctx); r.config.Refusals != nil {
		r.config.Refusals.Add(denials.Refusal{
			Type: resource.RegistryRefused, Group: t.group, Subject: t.repo, RequestID: actor.RequestID,
			Activity: resource.Activity{Identity: actor.Subject, Reason: resource.RefusedRule, Address: actor.Remote},
		})
	}
	return oci.NewProblem(http.StatusForbidden, oci.Denied, "%s", registry.PullRefusal(why))
}

// readManifest returns the manifest of a target, without its body unless the method is GET.
func (r *Registry) readManifest(ctx context.Context, t target) (registry.Manifest, error) {
	if t.method == http.MethodGet {
		return r.store.Manifest(ctx, t.repo, t.reference)
	}
	return r.store.StatManifest(ctx, t.repo, t.reference)
}

func (r *Registry) unknownManifest(t target, err error) error {
	if t.repo == "" && errors.Is(err, fault.NotFound) {
		return oci.NewProblem(http.StatusNotFound, oci.NameUnknown, "there is no repository %s", t.name)
	}
	return oci.StoreProblem(err, oci.ManifestUnknown, "manifest "+t.reference)
}

// setManifest sets the response headers for m. If the client already has m, setManifest responds with status 304 and
// returns false.
func setManifest(w http.ResponseWriter, req *http.Request, m registry.Manifest) bool {
	h := w.Header()
	h.Set("Docker-Content-Digest", m.Digest)
	h.Set("Etag", strconv.Quote(m.Digest))
	if strings.Contains(req.Header.Get("If-None-Match"), strconv.Quote(m.Digest)) {
		w.WriteHeader(http.StatusNotModified)
		return false
	}
	h.Set("Content-Type", m.MediaType)
	h.Set("Content-Length", strconv.FormatInt(m.Size, 10))
	return true
}

// putManifest stores a manifest, and tags it with the tag in the path or the tags
// in the query, in one transaction.
func (r *Registry) putManifest(w http.ResponseWriter, req *http.Request, t target) error {
	if err := oci.CheckReference(t.reference); err != nil {
		return err
	}
	tags, err := pushedTags(req, t)
	if err != nil {
		return err
	}
	if len(tags) > 0 {
		if err := r.require(req.Context(), t, resource.TagCreate); err != nil {
			return err
		}
	}
	ref, err := r.pushTo(req.Context(), t)
	if err != nil {
		return err
	}
	m, err := r.receiveManifest(w, req, t)
	if err != nil {
		return err
	}
	repo, err := r.store.PutManifest(req.Context(), ref, m, tags)
	if err != nil {
		return missing(err)
	}
	pull := registry.Pull{Push: true, Digest: m.Digest, Tag: strings.Join(tags, " "), Time: r.config.Now()}
	r.pulls.Add(req, repo, false, pull)
	h := w.Header()
	h.Set("Location", "/v2/"+t.name+"/manifests/"+m.Digest)
	h.Set("Docker-Content-Digest", m.Digest)
	if m.Subject != "" {
		h.Set("Oci-Subject", m.Subject)
	}
	for _, tag := range req.URL.Query()["tag"] {
		h.Add("Oci-Tag", tag)
	}
	r.config.Metrics.Pushes.Add(1)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// pushedTags returns the tags of a push, without duplicates.
func pushedTags(req *http.Request, t target) ([]string, error) {
	tags := slices.Clone(req.URL.Query()["tag"])
	if tag := oci.TagOf(t.reference); tag != "" {
		tags = append(tags, tag)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if len(tags) > maxTags {
		return nil, oci.BadManifest("a manifest gets at most %d tags at once", maxTags)
	}
	if i := slices.IndexFunc(tags, func(tag string) bool { return !registry.ValidTag(tag) }); i >= 0 {
		return nil, oci.BadManifest("%.200q is not a tag", tags[i])
	}
	return tags, nil
}

// receiveManifest reads the manifest from the body of a request. If the path contains a digest, it checks that the
// manifest has this digest.
func (r *Registry) receiveManifest(w http.ResponseWriter, req *http.Request, t target) (registry.Manifest, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(upload.BodyPause))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, oci.MaxManifest))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return registry.Manifest{}, oci.NewProblem(http.StatusRequestEntityTooLarge, oci.SizeInvalid,
			"a manifest has at most %d bytes", oci.MaxManifest)
	}
	if err != nil {
		return registry.Manifest{}, oci.BadManifest("the body ended early")
	}
	m, err := oci.ParseManifest(req.Header.Get("Content-Type"), body, r.config.Sparse)
	if err != nil {
		return registry.Manifest{}, err
	}
	d := digest.Digest(t.reference)
	if oci.TagOf(t.reference) != "" {
		d = digest.FromBytes(body)
	}
	if d.Algorithm().FromBytes(body) != d {
		return registry.Manifest{}, oci.NewProblem(http.StatusBadRequest, oci.DigestInvalid, "the content is not %s", d)
	}
	m.Digest = d.String()
	return m, nil
}

// missing returns the Problem for a push that failed because of err. If err is a MissingError, the Problem names the
// blobs and manifests that the client must push first.
func missing(err error) error {
	if errors.Is(err, fault.FailedPrecondition) && fault.From(err).Quota == nil {
		return oci.NewProblem(http.StatusConflict, oci.Denied, "%s", fault.From(err).Unmet[0].Description)
	}
	m, ok := errors.AsType[*registrydb.MissingError](err)
	if !ok {
		return err
	}
	p := &oci.Problem{Status: http.StatusNotFound}
	for _, n := range m.Needs[:min(len(m.Needs), maxTags)] {
		p.Issues = append(p.Issues, oci.Issue{
			Code: oci.ManifestBlobUnknown, Message: "the manifest refers to content this repository does not have",
			Detail: map[string]string{"digest": n.Digest},
		})
	}
	return p
}

// deleteManifest deletes a manifest with all its tags. If the path names a tag, it deletes only the tag.
func (r *Registry) deleteManifest(w http.ResponseWriter, req *http.Request, t target) error {
	ctx, tag := req.Context(), oci.TagOf(t.reference)
	needs := remove
	if tag != "" {
		needs = []resource.Capability{resource.TagDelete}
	}
	if err := r.admit(ctx, &t, needs); err != nil {
		return r.challenge(w, t, needs, err)
	}
	if err := oci.CheckReference(t.reference); err != nil {
		return err
	}
	set, err := r.store.RegistrySettings(ctx, t.group)
	if err != nil {
		return err
	}
	if tag != "" {
		err = r.store.DeleteTagNamed(ctx, t.repo, tag, set.Frozen)
	} else {
		err = r.store.DeleteManifest(ctx, t.repo, t.reference, set.Frozen)
	}
	if err != nil {
		return r.unknownManifest(t, err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
