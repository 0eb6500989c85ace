package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
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
func registries(ctx context.Context, m *measurement) {
	ours := m.holdfastd(ctx, "", empty(ctx, m.engine, "registry"))
	theirs := m.distribution(ctx)
	m.hugePush(ctx, ours, theirs) // first, because it is about the memory of servers that have done nothing before
	m.layers(ctx, ours, theirs)
	m.manifests(ctx, ours, theirs)
	m.tagLists(ctx, ours)
	m.concurrentPulls(ctx, ours)
}

// smallLayer is the layer of a small image.
const smallLayer = "a layer"

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// layers pushes and pulls big layers alternately, always new ones.
func (m *measurement) layers(ctx context.Context, ours, theirs *process) {
	content := make([]byte, layerSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	var push, pull [2][]time.Duration
	for i := range layerTurns + 1 {
		binary.BigEndian.PutUint64(content, uint64(i))
		digest := digestOf(content)
		for side, d := range []*process{ours, theirs} {
			begin := time.Now()
			check(d.pushBlob(ctx, "layers", bytes.NewReader(content), func() string { return digest }))
			pushed := time.Now()
			must(d.get(ctx, "/v2/"+d.prefix+"layers/blobs/"+digest))
			if i > 0 { // the first is for warm-up
				push[side], pull[side] = append(push[side], pushed.Sub(begin)), append(pull[side], time.Since(pushed))
			}
		}
	}
	m.slower("registry: push 100 MB", newPair(median(push[0]), median(push[1])), 1)
	m.slower("registry: pull 100 MB", newPair(median(pull[0]), median(pull[1])), 1)
}

// smallImages pushes two small blobs, and returns a function that returns a new manifest of
// them at every call.
func smallImages(ctx context.Context, d *process, repo string) func() []byte {
	var parts []string
	for _, content := range []string{`{"architecture":"amd64","os":"linux"}`, smallLayer} {
		digest := digestOf([]byte(content))
		check(d.pushBlob(ctx, repo, strings.NewReader(content), func() string { return digest }))
		parts = append(parts, descriptor(digest, len(content)))
	}
	var n atomic.Int64
	return func() []byte {
		const manifest = `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s],"annotations":{"n":"%d"}}`
		return fmt.Appendf(nil, manifest, ociImage, parts[0], parts[1], n.Add(1))
	}
}

func descriptor(digest string, size int) string {
	return fmt.Sprintf(`{"mediaType":"application/octet-stream","digest":%q,"size":%d}`, digest, size)
}

// manifests reads and writes manifests by tag.
func (m *measurement) manifests(ctx context.Context, ours, theirs *process) {
	var get, head, list, put [2]operation
	for side, d := range []*process{ours, theirs} {
		next := smallImages(ctx, d, "manifests")
		for i := range fewTags {
			check(d.putManifest(ctx, "manifests", fmt.Sprintf("v%d", i), next()))
		}
		read := func(method string) operation {
			return func(ctx context.Context, client int) error {
				path := fmt.Sprintf("/v2/%smanifests/manifests/v%d", d.prefix, client)
				_, _, err := d.do(ctx, http.StatusOK, method, path, nil, "Accept", ociImage)
				return err
			}
		}
		get[side], head[side] = read(http.MethodGet), read(http.MethodHead)
		list[side] = d.getter("/v2/" + d.prefix + "manifests/tags/list")
		smallImages(ctx, d, "put")
		var tag atomic.Int64
		put[side] = func(ctx context.Context, _ int) error {
			return d.putManifest(ctx, "put", fmt.Sprintf("t%d", tag.Add(1)), next())
		}
	}
	m.faster("registry: GET manifest", race(ctx, get[0], get[1]), 2)
	m.faster("registry: HEAD manifest", race(ctx, head[0], head[1]), 2)
	m.faster("registry: list 100 tags", race(ctx, list[0], list[1]), 2)
	m.faster("registry: PUT manifest and tag", race(ctx, put[0], put[1]), 2)
}

// tagLists compares pages of a repo with many tags with those of one with few.
func (m *measurement) tagLists(ctx context.Context, ours *process) {
	for repo, n := range map[string]int{"many": manyTags, "few": fewTags} {
		manifest := smallImages(ctx, ours, repo)()
		for i := 0; i < n; i += 50 {
			query := "?"
			for k := range 50 {
				query += fmt.Sprintf("tag=t%d&", i+k)
			}
			check(ours.putManifest(ctx, repo, digestOf(manifest)+query, manifest))
		}
	}
	var got struct{ Repos []struct{ UID, Name string } }
	check(ours.doJSON(ctx, http.MethodGet, "/registry/v2beta1/repos?page_size=200", nil, &got))
	uids := map[string]string{}
	for _, repo := range got.Repos {
		uids[repo.Name] = repo.UID
	}
	const tags = "/registry/v2beta1/tags?uidp.children_of=%[2]s&page_size=50"
	for what, format := range map[string]string{
		"registry: page of 10,000 tags, protocol":    "/v2/dev/%[1]s/tags/list?n=50&last=t3",
		"registry: page of 10,000 tags, API":         tags,
		"registry: page of 10,000 tags, API by name": tags + "&order_by=name",
	} {
		page := func(repo string) operation { return ours.getter(fmt.Sprintf(format, repo, uids[repo])) }
		m.slower(what, alternate(ctx, page("many"), page("few")), 1.5)
	}
}

// concurrentPulls lets many clients pull one image at once.
func (m *measurement) concurrentPulls(ctx context.Context, ours *process) {
	layer := make([]byte, pulledLayer)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(layer) // never fails
	digest := digestOf(layer)
	check(ours.pushBlob(ctx, "crowd", bytes.NewReader(layer), func() string { return digest }))
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"layers":[%s]}`, descriptor(digest, len(layer)))
	check(ours.putManifest(ctx, "crowd", "v1", manifest))
	rest := ours.resetPeak()
	var failed atomic.Int64
	_ = together(pullClients, func(int) error { // failures are counted
		for _, path := range []string{"manifests/v1", "blobs/" + digest} {
			if _, err := ours.get(ctx, "/v2/dev/crowd/"+path); err != nil {
				failed.Add(1)
				return err
			}
		}
		return nil
	})
	m.exactly("registry: 200 pulls at once that failed", failed.Load(), 0)
	m.under("registry: memory for 200 pulls at once, above rest", max(0, ours.memory("VmHWM")-rest), 0, megabytes)
}

// hugePush pushes a very big layer, and measures the memory that the server needs for it.
func (m *measurement) hugePush(ctx context.Context, ours, theirs *process) {
	var took [2]time.Duration
	for side, d := range []*process{ours, theirs} {
		rest := d.resetPeak()
		h := sha256.New()
		body := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{3}), hugeLayer), h)
		begin := time.Now()
		check(d.pushBlob(ctx, "huge", body, func() string { return fmt.Sprintf("sha256:%x", h.Sum(nil)) }))
		took[side] = time.Since(begin)
		if side == 0 {
			m.under("registry: memory for a push of 2 GB, above rest", max(0, d.memory("VmHWM")-rest), 64<<20, megabytes)
		}
	}
	m.slower("registry: push 2 GB", newPair(took[0], took[1]), 0)
}
