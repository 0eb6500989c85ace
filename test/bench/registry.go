package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	mediumLayer = 10 << 20
	layerSize   = 100 << 20
	layerTurns  = 9
	layerChunk  = 10 << 20
	manyPushes  = 1000
	hugeLayer   = 2 << 30
	manyTags    = 10_000
	fewTags     = 100
	pullClients = 200
	pulledLayer = 5 << 20
	crowd       = 1000
	crowdLayer  = 50 << 20
)

// registries compares the registry with distribution, with the same content and the same
// client. Both run in their own processes and sync to disk.
func registries(ctx context.Context, m *measurement) {
	ours := m.holdfastd(ctx, "", empty(ctx, m.engine, "registry"),
		fmt.Sprintf("HOLDFAST_MAX_CONNECTIONS_PER_ADDRESS=%d", 2*crowd)) // all clients have one address here
	theirs := m.distribution(ctx)
	m.hugePush(ctx, ours, theirs) // first, because it is about the memory of servers that have done nothing before
	m.layers(ctx, ours, theirs, mediumLayer)
	m.layers(ctx, ours, theirs, layerSize)
	m.manifests(ctx, ours, theirs)
	m.tagLists(ctx, ours)
	m.concurrentPulls(ctx, ours)
	m.crowdedPulls(ctx, ours)
	check(errors.Join(ours.stop(), theirs.stop()))
	m.memoryAfterPushes(ctx)
}

// smallLayer is the layer of a small image.
const smallLayer = "a layer"

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// layers pushes and pulls big layers alternately, always new ones.
func (m *measurement) layers(ctx context.Context, ours, theirs *process, size int) {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	var push, pull, chunked [2][]time.Duration
	for i := range layerTurns + 1 {
		binary.BigEndian.PutUint64(content, uint64(i))
		digest := digestOf(content)
		for side, d := range []*process{ours, theirs} {
			begin := time.Now()
			check(d.pushBlob(ctx, "layers", bytes.NewReader(content), func() string { return digest }))
			pushed := time.Now()
			must(d.get(ctx, "/v2/"+d.prefix+"layers/blobs/"+digest))
			pulled := time.Now()
			check(d.pushChunks(ctx, "chunks", content, digest))
			if i > 0 { // the first is for warm-up
				push[side], pull[side] = append(push[side], pushed.Sub(begin)), append(pull[side], pulled.Sub(pushed))
				chunked[side] = append(chunked[side], time.Since(pulled))
			}
		}
	}
	what := fmt.Sprintf("%d MB", size>>20)
	m.slower("registry: push "+what, newPair(median(push[0]), median(push[1])), 1)
	m.slower("registry: pull "+what, newPair(median(pull[0]), median(pull[1])), 1)
	if size > layerChunk {
		m.slower("registry: push "+what+" in chunks of 10 MB", newPair(median(chunked[0]), median(chunked[1])), 1)
	}
}

// crowdedPulls lets a thousand clients pull one big layer at once. Nobody is to wait much longer than others.
func (m *measurement) crowdedPulls(ctx context.Context, ours *process) {
	layer := make([]byte, crowdLayer)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(layer) // never fails
	digest := digestOf(layer)
	check(ours.pushBlob(ctx, "big-crowd", bytes.NewReader(layer), func() string { return digest }))
	ours.resetPeak()
	took := make([]time.Duration, crowd)
	err := together(crowd, func(i int) error {
		begin := time.Now()
		_, err := ours.get(ctx, "/v2/dev/big-crowd/blobs/"+digest) // which fails if it is cut short
		took[i] = time.Since(begin)
		return err
	})
	check(err)
	m.slower("registry: 1,000 pulls of 50 MB at once, p99 against the median", newPair(quantile(took, 0.99), median(took)), 3)
	m.under("registry: memory of the server in 1,000 pulls at once", ours.memory("VmHWM"), 300e6, megabytes)
}

// memoryAfterPushes compares the memory that servers hold after many pushes of small images, if they have done nothing else.
// Most of it is the program itself, as far as it has been read from the disk.
func (m *measurement) memoryAfterPushes(ctx context.Context) {
	ours, theirs := m.holdfastd(ctx, "", empty(ctx, m.engine, "pushes")), m.distribution(ctx)
	var held [2]float64
	for side, d := range []*process{ours, theirs} {
		for i := range manyPushes {
			next := smallImages(ctx, d, fmt.Sprintf("many%d", i%10))
			check(d.putManifest(ctx, fmt.Sprintf("many%d", i%10), fmt.Sprintf("v%d", i), next()))
		}
		held[side] = d.memory("VmRSS")
	}
	m.under("registry: memory held after 1,000 pushes", held[0], 80e6, megabytes)
	m.under("registry: of which is not the program", ours.memory("RssAnon"), 0, megabytes)
	m.under("registry: memory that distribution holds then", held[1], 0, megabytes)
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
	var get, head, list, put, push [2]operation
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
		push[side] = func(ctx context.Context, _ int) error { return pushSmall(ctx, d, tag.Add(1)) }
	}
	m.faster("registry: GET manifest", race(ctx, get[0], get[1]), 2.5)
	m.faster("registry: HEAD manifest", race(ctx, head[0], head[1]), 2.5)
	m.faster("registry: list 100 tags", race(ctx, list[0], list[1]), 2.5)
	m.faster("registry: PUT manifest and tag", race(ctx, put[0], put[1]), 2)
	m.faster("registry: push an image of 5 small layers", race(ctx, push[0], push[1]), 2.5)
}

// pushSmall pushes an image of five small layers that nobody has.
func pushSmall(ctx context.Context, d *process, n int64) error {
	var parts []string
	for i := range 5 {
		layer := fmt.Appendf(nil, "layer %d of image %d", i, n)
		if err := d.pushBlob(ctx, "small", bytes.NewReader(layer), func() string { return digestOf(layer) }); err != nil {
			return err
		}
		parts = append(parts, descriptor(digestOf(layer), len(layer)))
	}
	const manifest = `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`
	body := fmt.Appendf(nil, manifest, ociImage, parts[0], strings.Join(parts, ","))
	return d.putManifest(ctx, "small", fmt.Sprintf("t%d", n), body)
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
