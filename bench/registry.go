package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	layerSize   = 100 << 20
	layerTurns  = 9
	hugeLayer   = 2 << 30
	manyTags    = 10_000
	fewTags     = 100
	pullClients = 200
	pulledLayer = 5 << 20
)

// registries compares the registry with distribution, with the same content and the same
// client. Both run in their own processes and sync to disk.
func registries(ctx context.Context, b *bench, e engine, r *report) (err error) {
	url, err := empty(ctx, e, "registry")
	if err != nil {
		return err
	}
	ours, err := b.holdfastd(ctx, "", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	theirs, err := b.distribution(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, theirs.stop()) }()
	// The first one is about memory, so the servers must not have done anything before.
	steps := []func(context.Context, *process, *process, *report) error{
		hugePush, layers, manifests, tagLists, concurrentPulls,
	}
	for _, step := range steps {
		if err := step(ctx, ours, theirs, r); err != nil {
			return err
		}
	}
	return nil
}

// smallLayer is the layer of a small image.
const smallLayer = "a layer"

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// layers pushes and pulls big layers alternately, always new ones.
func layers(ctx context.Context, ours, theirs *process, r *report) error {
	content := make([]byte, layerSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	var push, pull [2][]time.Duration
	for i := range layerTurns + 1 {
		binary.BigEndian.PutUint64(content, uint64(i))
		digest := digestOf(content)
		for side, d := range []*process{ours, theirs} {
			begin := time.Now()
			if err := d.pushBlob(ctx, "layers", bytes.NewReader(content),
				func() string { return digest }); err != nil {
				return err
			}
			pushed := time.Now()
			if _, _, err := d.do(ctx, http.StatusOK, http.MethodGet, "/v2/"+d.prefix+"layers/blobs/"+digest,
				nil); err != nil {
				return err
			}
			if i > 0 { // the first is for warm-up
				push[side], pull[side] = append(push[side], pushed.Sub(begin)), append(pull[side], time.Since(pushed))
			}
		}
	}
	for what, took := range map[string][2][]time.Duration{"registry: push 100 MB": push,
		"registry: pull 100 MB": pull} {
		p := pair{a: median(took[0]), b: median(took[1])}
		p.ratio = float64(p.a) / float64(p.b)
		r.slower(what, p, 1)
	}
	return nil
}

// smallImages pushes two small blobs, and returns a function that returns a new manifest of
// them at every call.
func smallImages(ctx context.Context, d *process, repo string) (func() []byte, error) {
	var parts []string
	for _, content := range []string{`{"architecture":"amd64","os":"linux"}`, smallLayer} {
		digest := digestOf([]byte(content))
		if err := d.pushBlob(ctx, repo, bytes.NewReader([]byte(content)),
			func() string { return digest }); err != nil {
			return nil, err
		}
		parts = append(parts, descriptor(digest, len(content)))
	}
	var n atomic.Int64
	return func() []byte {
		const manifest = `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s],"annotations":{"n":"%d"}}`
		return fmt.Appendf(nil, manifest, ociImage, parts[0], parts[1], n.Add(1))
	}, nil
}

func descriptor(digest string, size int) string {
	return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest, size)
}

// manifests reads and writes manifests by tag.
func manifests(ctx context.Context, ours, theirs *process, r *report) error {
	get, put := [2]func(string) operation{}, [2]operation{}
	var list [2]operation
	for side, d := range []*process{ours, theirs} {
		next, err := smallImages(ctx, d, "manifests")
		if err != nil {
			return err
		}
		for i := range fewTags {
			if err := d.putManifest(ctx, "manifests", fmt.Sprintf("v%d", i), next()); err != nil {
				return err
			}
		}
		var tag atomic.Int64
		get[side] = func(method string) operation {
			return func(ctx context.Context, client int) error {
				path := fmt.Sprintf("/v2/%smanifests/manifests/v%d", d.prefix, client)
				_, _, err := d.do(ctx, http.StatusOK, method, path, nil, "Accept", ociImage)
				return err
			}
		}
		put[side] = func(ctx context.Context, _ int) error {
			return d.putManifest(ctx, "put", fmt.Sprintf("t%d", tag.Add(1)), next())
		}
		if _, err := smallImages(ctx, d, "put"); err != nil {
			return err
		}
		list[side] = func(ctx context.Context, _ int) error {
			_, _, err := d.do(ctx, http.StatusOK, http.MethodGet, "/v2/"+d.prefix+"manifests/tags/list", nil)
			return err
		}
	}
	for _, m := range []struct {
		what string
		a, b operation
	}{
		{"registry: GET manifest", get[0](http.MethodGet), get[1](http.MethodGet)},
		{"registry: HEAD manifest", get[0](http.MethodHead), get[1](http.MethodHead)},
		{"registry: list 100 tags", list[0], list[1]},
		{"registry: PUT manifest and tag", put[0], put[1]},
	} {
		p, err := race(ctx, m.a, m.b)
		if err != nil {
			return err
		}
		r.faster(m.what, p, 2)
	}
	return nil
}

// tagLists compares pages of a repo with many tags with those of one with few.
func tagLists(ctx context.Context, ours, _ *process, r *report) error {
	for repo, n := range map[string]int{"many": manyTags, "few": fewTags} {
		next, err := smallImages(ctx, ours, repo)
		if err != nil {
			return err
		}
		m := next()
		for i := 0; i < n; i += 50 {
			query := "?"
			for k := range 50 {
				query += fmt.Sprintf("tag=t%d&", i+k)
			}
			if err := ours.putManifest(ctx, repo, digestOf(m)+query, m); err != nil {
				return err
			}
		}
	}
	uids, err := repoUIDs(ctx, ours)
	if err != nil {
		return err
	}
	page := func(format string, args ...any) operation {
		path := fmt.Sprintf(format, args...)
		return func(ctx context.Context, _ int) error {
			_, _, err := ours.do(ctx, http.StatusOK, http.MethodGet, path, nil)
			return err
		}
	}
	const tags = "/registry/v2beta1/tags?uidp.children_of=%[2]s&page_size=50"
	for what, format := range map[string]string{
		"registry: page of 10,000 tags, protocol":    "/v2/dev/%[1]s/tags/list?n=50&last=t3",
		"registry: page of 10,000 tags, API":         tags,
		"registry: page of 10,000 tags, API by name": tags + "&order_by=name",
	} {
		p, err := alternate(ctx, page(format, "many", uids["many"]), page(format, "few", uids["few"]))
		if err != nil {
			return err
		}
		r.slower(what, p, 1.5)
	}
	return nil
}

// repoUIDs returns the UIDs of the repos of the organization by name.
func repoUIDs(ctx context.Context, d *process) (map[string]string, error) {
	var got struct{ Repos []struct{ UID, Name string } }
	err := d.doJSON(ctx, http.MethodGet, "/registry/v2beta1/repos?page_size=200", nil, &got)
	uids := map[string]string{}
	for _, repo := range got.Repos {
		uids[repo.Name] = repo.UID
	}
	return uids, err
}

// concurrentPulls lets many clients pull one image at once.
func concurrentPulls(ctx context.Context, ours, _ *process, r *report) error {
	layer := make([]byte, pulledLayer)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(layer) // never fails
	digest := digestOf(layer)
	if err := ours.pushBlob(ctx, "crowd", bytes.NewReader(layer), func() string { return digest }); err != nil {
		return err
	}
	m := fmt.Appendf(nil, `{"schemaVersion":2,"layers":[%s]}`, descriptor(digest, len(layer)))
	if err := ours.putManifest(ctx, "crowd", "v1", m); err != nil {
		return err
	}
	if err := ours.resetPeak(); err != nil {
		return err
	}
	rest, err := ours.memory("VmRSS")
	if err != nil {
		return err
	}
	var failed atomic.Int64
	_ = together(pullClients, func(int) error {
		for _, path := range []string{"manifests/v1", "blobs/" + digest} {
			if _, _, err := ours.do(ctx, http.StatusOK, http.MethodGet, "/v2/dev/crowd/"+path, nil); err != nil {
				failed.Add(1)
				return err
			}
		}
		return nil
	})
	peak, err := ours.memory("VmHWM")
	if err != nil {
		return err
	}
	r.exactly("registry: 200 pulls at once that failed", failed.Load(), 0)
	r.under("registry: memory for 200 pulls at once, above rest", max(0, peak-rest), 0, megabytes)
	return nil
}

// hugePush pushes a very big layer, and measures the memory that the server needs for it.
func hugePush(ctx context.Context, ours, theirs *process, r *report) error {
	var took [2]time.Duration
	for side, d := range []*process{ours, theirs} {
		if err := d.resetPeak(); err != nil {
			return err
		}
		rest, err := d.memory("VmRSS")
		if err != nil {
			return err
		}
		h := sha256.New()
		body := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{3}), hugeLayer), h)
		begin := time.Now()
		if err := d.pushBlob(ctx, "huge", body, func() string { return digestSum(h) }); err != nil {
			return err
		}
		took[side] = time.Since(begin)
		peak, err := d.memory("VmHWM")
		if err != nil {
			return err
		}
		if side == 0 {
			r.under("registry: memory for a push of 2 GB, above rest", max(0, peak-rest), 64<<20, megabytes)
		}
	}
	r.slower("registry: push 2 GB", pair{took[0], took[1], took[0].Seconds() / took[1].Seconds()}, 0)
	return nil
}

func digestSum(h hash.Hash) string { return fmt.Sprintf("sha256:%x", h.Sum(nil)) }
