package replication

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/metric"
	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/registry/imagecopy"
	"github.com/holdfast-dev/holdfast/internal/registry/sourcedb"
	"github.com/holdfast-dev/holdfast/internal/registry/upstream"
)

// agent is the client that the log of pulls names for copies.
const agent = "replication"

// copyTag makes the target have a tag as the repo has it, and records that.
func (a *attempt) copyTag(ctx context.Context, g sourcedb.PendingTag) error {
	if err := a.allowed(ctx, g.Repo); err != nil {
		return err
	}
	path, err := a.Store.RepoPath(ctx, g.Repo)
	if errors.Is(err, fault.NotFound) {
		return a.removeTag(ctx, g)
	}
	if err != nil {
		return err
	}
	below := pathBelow(a.Replication, path)
	if !a.SelectsRepo(below) || !a.SelectsTag(g.Name) {
		return a.sources.Dropped(ctx, a.run, g)
	}
	to, ok := a.TargetRepo(below)
	tag, err := a.Store.TagNamed(ctx, g.Repo, g.Name)
	if errors.Is(err, fault.NotFound) {
		return a.removeTag(ctx, g)
	}
	if err != nil {
		return err
	}
	if !ok {
		return &tagError{reason: badName + to}
	}
	set, err := a.collect(ctx, g.Repo, tag)
	if err != nil {
		return err
	}
	content := contentOf(tag.Digest, set)
	if g.Digest == tag.Digest && g.Content == content && g.Target == to {
		a.Metrics.ReplicatedTags.Add(1, metric.Unchanged)
		return a.sources.Copied(ctx, a.run, g, sourcedb.CopiedTag{Digest: tag.Digest, Content: content, Target: to})
	}
	err = a.Copier.CountPullFrom(ctx, g.Repo, false)
	if errors.Is(err, fault.ResourceExhausted) {
		return &tagError{reason: pullsUsedUp}
	}
	if err != nil {
		return err
	}
	if err := a.copySet(ctx, copying{attempt: a, from: g.Repo, to: to}, tag, set); err != nil {
		return err
	}
	a.prove()
	a.Metrics.ReplicatedTags.Add(1, metric.Copied)
	a.Pulls.Record(g.Repo, registry.Pull{
		Digest: tag.Digest, Tag: tag.Name, Identity: a.SetBy, Agent: agent, Time: a.Now().UTC(),
	})
	return a.sources.Copied(ctx, a.run, g, sourcedb.CopiedTag{Digest: tag.Digest, Content: content, Target: to})
}

// collect reads the manifests of an image and of everything that is attached to it. It returns a tagError if the image
// must not be copied.
func (a *attempt) collect(ctx context.Context, repo resource.UID, tag registry.Tag) (*imagecopy.Set, error) {
	if a.SignedOnly {
		signer, why, err := a.Images.SignedBy(ctx, repo, tag.Digest, repo.Parent())
		if err != nil {
			return nil, err
		}
		if signer == "" && why != "" {
			return nil, &tagError{reason: notSigned + why, skip: true}
		}
	}
	set := a.Copier.NewSet(repo, false, true)
	_, err := set.TryAdd(ctx, tag.Digest)
	switch {
	case imagecopy.IsRefused(err):
		return nil, &tagError{reason: refusedHere + fault.From(err).Unmet[0].Description}
	case imagecopy.IsTooLarge(err):
		return nil, &tagError{reason: tooLarge}
	case errors.Is(err, fault.NotFound):
		return nil, &tagError{reason: incomplete}
	}
	return set, err
}

// contentOf identifies everything that is copied with an image.
func contentOf(digest string, set *imagecopy.Set) string {
	var all []string
	for _, m := range set.Manifests {
		all = append(all, m.Digest)
	}
	for _, i := range set.Attached {
		all = append(all, i.Tag+"="+i.Digest)
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(digest + "\n" + strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}

// removeTag handles a tag that does not exist any more. It removes the tag at the target if the replication follows
// deletions and the tag at the target still has the copied digest.
func (a *attempt) removeTag(ctx context.Context, g sourcedb.PendingTag) error {
	if !a.FollowDeletions || g.Digest == "" {
		return a.sources.Dropped(ctx, a.run, g)
	}
	digest, err := a.Client.TagDigest(ctx, a.target, g.Target, g.Name)
	if err != nil {
		return remoteError(err)
	}
	if digest == g.Digest {
		if err := a.Client.DeleteTag(ctx, a.target, g.Target, g.Name); err != nil {
			return remoteError(err)
		}
		a.Metrics.ReplicatedTags.Add(1, metric.Removed)
	}
	return a.sources.Dropped(ctx, a.run, g)
}

// A copying copies the images of one repo.
type copying struct {
	*attempt
	from resource.UID
	to   string // name of the repo at the target
}

// copySet copies an image and then its tag. Children come before the indexes that list them, and attached artifacts
// after their subjects. The tag comes last, so that it never names an incomplete image.
func (a *attempt) copySet(ctx context.Context, c copying, tag registry.Tag, set *imagecopy.Set) error {
	bodies := map[string]registry.Manifest{}
	alone := len(set.Attached) == 0 && len(set.Manifests) == 1 // then the tag is the only reference that is written
	for _, m := range set.Manifests {
		bodies[m.Digest] = m
		if err := c.copyManifest(ctx, m, alone); err != nil {
			return err
		}
	}
	for _, i := range set.Attached {
		if _, err := c.put(ctx, i.Tag, bodies[i.Digest]); err != nil {
			return err
		}
	}
	listed, err := c.put(ctx, tag.Name, bodies[tag.Digest])
	if err != nil || listed || !alone {
		return err
	}
	return c.list(ctx, bodies[tag.Digest])
}

// copyManifest copies a manifest and its blobs, unless the target has it. If alone is set, it copies only the blobs,
// because the manifest is then written under its tag.
func (c copying) copyManifest(ctx context.Context, m registry.Manifest, alone bool) error {
	if err := c.allowed(ctx, c.from); err != nil {
		return err
	}
	// An attached manifest is always written, because only the response says whether the target lists it.
	if m.Subject == "" {
		has, err := c.Client.HasManifest(ctx, c.target, c.to, m.Digest)
		if err != nil || has {
			return remoteError(err)
		}
	}
	for _, n := range m.Needs {
		if n.Manifest {
			continue
		}
		if err := c.copyBlob(ctx, n); err != nil {
			return err
		}
	}
	if alone {
		return nil
	}
	listed, err := c.put(ctx, m.Digest, m)
	if err != nil || listed {
		return err
	}
	return c.list(ctx, m)
}

func (c copying) put(ctx context.Context, reference string, m registry.Manifest) (listed bool, _ error) {
	if err := c.allowed(ctx, c.from); err != nil {
		return false, err
	}
	listed, err := c.Client.PushManifest(ctx, c.target, c.to, reference, m.Digest, m.MediaType, m.Body)
	return listed, remoteError(err)
}

// blobCopies shares the copies of a blob among the tags that need it.
type blobCopies struct {
	mu   sync.Mutex
	jobs map[string]*blobCopy
}

// A blobCopy is a copy that is running or has succeeded.
type blobCopy struct {
	done chan struct{}
	err  error
}

// maxBlobCopies is the number of copies that an attempt remembers.
const maxBlobCopies = 10_000

// once calls f unless another call for the same key has succeeded. Concurrent calls for a key wait for the first.
func (b *blobCopies) once(ctx context.Context, key string, f func() error) error {
	b.mu.Lock()
	if job := b.jobs[key]; job != nil {
		b.mu.Unlock()
		select {
		case <-job.done:
			return job.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if b.jobs == nil || len(b.jobs) >= maxBlobCopies {
		b.jobs = map[string]*blobCopy{}
	}
	job := &blobCopy{done: make(chan struct{})}
	b.jobs[key] = job
	b.mu.Unlock()
	job.err = f()
	if job.err != nil {
		b.mu.Lock()
		if b.jobs[key] == job {
			delete(b.jobs, key)
		}
		b.mu.Unlock()
	}
	close(job.done)
	return job.err
}

// copyBlob copies a blob, unless the target has it. A blob that need not be here is left out if it is not here.
func (c copying) copyBlob(ctx context.Context, n registry.Need) error {
	return c.blobs.once(ctx, c.to+" "+n.Digest, func() error {
		has, err := c.Client.HasBlob(ctx, c.target, c.to, n.Digest)
		if err != nil {
			return remoteError(err)
		}
		blob := place{c.UID, n.Digest}
		if !has {
			b, err := c.Store.Blob(ctx, c.from, n.Digest)
			if errors.Is(err, fault.NotFound) && n.Optional {
				return nil
			}
			if errors.Is(err, fault.NotFound) {
				return &tagError{reason: incomplete}
			}
			if err != nil {
				return err
			}
			from, _ := c.places.Get(blob)
			if from == c.to {
				from = ""
			}
			if err := c.pushBlob(ctx, b, from); err != nil {
				return err
			}
		}
		c.places.Add(blob, c.to)
		return nil
	})
}

func (c copying) pushBlob(ctx context.Context, b registry.Blob, from string) error {
	var local failure // reading the blob here
	err := c.Client.PushBlob(ctx, c.target, c.to, b.Digest, b.Size, from, func() (io.ReadCloser, error) {
		body, err := c.Storage.OpenBlob(ctx, b.Path, b.Size)
		if err != nil {
			return nil, local.set(err)
		}
		return &guarded{ReadCloser: body, allowed: func() error { return local.set(c.allowed(ctx, c.from)) }}, nil
	})
	if err == nil {
		return nil
	}
	return cmp.Or(local.get(), remoteError(err))
}

// A failure keeps the first error of a request's body, which another goroutine reads.
type failure struct {
	mu  sync.Mutex
	err error
}

func (f *failure) set(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = cmp.Or(f.err, err)
	return err
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// guardedPiece is the number of bytes of a blob that are sent before the access is checked again.
const guardedPiece = 4 << 20

// A guarded reads a blob until the access to it ends.
type guarded struct {
	io.ReadCloser
	allowed func() error
	read    int
}

func (g *guarded) Read(p []byte) (int, error) {
	if g.read >= guardedPiece {
		g.read = 0
		if err := g.allowed(); err != nil {
			return 0, err
		}
	}
	n, err := g.ReadCloser.Read(p)
	g.read += n
	return n, err
}

// A descriptor is an entry in a list of attached artifacts.
type descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

const indexType = "application/vnd.oci.image.index.v1+json"

// list adds an attached manifest to the list at the tag of its subject, for a target that does not list attached
// manifests itself. It does nothing if the manifest has no subject.
func (c copying) list(ctx context.Context, m registry.Manifest) error {
	if m.Subject == "" {
		return nil
	}
	tag := strings.Replace(m.Subject, ":", "-", 1)
	tag = tag[:min(len(tag), 128)] // a tag has at most 128 characters
	c.listing.Lock()
	defer c.listing.Unlock()
	body, err := c.Client.TaggedManifest(ctx, c.target, c.to, tag)
	if err != nil {
		return remoteError(err)
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	if body != nil && json.Unmarshal(body, &index) != nil {
		return &tagError{reason: theTarget + "its list of attached artifacts cannot be read", remote: true}
	}
	if slices.ContainsFunc(index.Manifests, func(d descriptor) bool { return d.Digest == m.Digest }) {
		return nil
	}
	entry := descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: int64(len(m.Body)), ArtifactType: m.ArtifactType}
	_ = json.Unmarshal([]byte(m.Annotations), &entry.Annotations) // annotations that are not strings are left out
	body, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": indexType, "manifests": append(index.Manifests, entry),
	})
	if err != nil {
		return err
	}
	if len(body) > upstream.MaxManifest {
		return &tagError{reason: "too many artifacts are attached to the image for a target that does not list them"}
	}
	sum := sha256.Sum256(body)
	_, err = c.put(ctx, tag, registry.Manifest{
		Digest: "sha256:" + hex.EncodeToString(sum[:]), MediaType: indexType, Body: body,
	})
	return err
}
