package main

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-dev/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/internal/vuln"
)

const (
	pushTarget  = 0.95
	pushRounds  = 5 // and one for warm-up
	pushImages  = 16
	pushClients = 4
	pushBytes   = 4 << 20 // of a layer beside what tells of packages
)

// pushesIndexed compares pushes to a server that inspects images with pushes to one that does
// not. Each is a new image of the same size: a layer of packages, and content. The server
// may inspect them whenever it likes; before it is the other's turn, it is waited for.
func (m *measurement) pushesIndexed(ctx context.Context) {
	binary := m.build(ctx, ".", program)
	url := empty(ctx, m.engine, "indexed")
	servers := []*process{
		m.holdfastd(ctx, binary, url),
		m.holdfastd(ctx, binary, empty(ctx, m.engine, "not_indexed"), "HOLDFAST_INSPECT_WORKERS=-1"),
	}
	queue := m.engine.connect(url, 1)
	defer queue.Close()
	content := make([]byte, pushBytes)
	_, _ = rand.NewChaCha8([32]byte{4}).Read(content) // never fails
	n := 0
	var all [2][]float64
	var ratios []float64
	for round := range pushRounds + 1 {
		var rate [2]float64
		for _, side := range [...]int{round % 2, 1 - round%2} {
			var layers [][]byte
			for range pushImages {
				n++
				layers = append(layers, packageLayer(n, content))
			}
			begin := time.Now()
			check(together(pushClients, func(client int) error {
				for i := client; i < pushImages; i += pushClients {
					if err := servers[side].pushImage(ctx, fmt.Sprintf("app%d", client), layers[i]); err != nil {
						return err
					}
				}
				return nil
			}))
			rate[side] = pushImages / time.Since(begin).Seconds()
			if side == 0 {
				awaitInspected(ctx, queue)
			}
		}
		if round > 0 {
			all[0], all[1] = append(all[0], rate[0]), append(all[1], rate[1])
			ratios = append(ratios, rate[0]/rate[1])
		}
	}
	p := rates{a: median(all[0]), b: median(all[1]), ratio: median(ratios)}
	m.faster("findings: pushes of images of 4 MB with indexing / without", p, pushTarget)
	for _, s := range servers {
		check(s.stop())
	}
}

// packageLayer returns a layer with two hundred packages and some content.
func packageLayer(n int, content []byte) []byte {
	var status strings.Builder
	for i := range 200 {
		fmt.Fprintf(&status, "Package: lib%d\nStatus: install ok installed\nArchitecture: amd64\nSource: source%d\nVersion: 1.%d.0-1\n\n",
			i, i, (i*n)%eachName)
	}
	var b bytes.Buffer
	packed := must(gzip.NewWriterLevel(&b, gzip.BestSpeed))
	w := tar.NewWriter(packed)
	for name, text := range map[string][]byte{
		"etc/os-release":      []byte("ID=debian\nVERSION_ID=\"12\"\n"),
		"var/lib/dpkg/status": []byte(status.String()),
		"app/number":          fmt.Appendf(nil, "%d", n),
		"app/content":         content,
	} {
		check(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}))
		must(w.Write(text))
	}
	check(w.Close())
	check(packed.Close())
	return b.Bytes()
}

// pushImage pushes a layer, a configuration and a manifest.
func (p *process) pushImage(ctx context.Context, repo string, layer []byte) error {
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`)
	for _, blob := range [][]byte{config, layer} {
		if err := p.pushBlob(ctx, repo, bytes.NewReader(blob), func() string { return digestOf(blob) }); err != nil {
			return err
		}
	}
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":%q,"size":%d}]}`,
		ociImage, registry.ImageConfigs[0], digestOf(config), len(config), digestOf(layer), len(layer))
	return p.putManifest(ctx, repo, "t"+digestOf(layer)[7:20], manifest)
}

// awaitInspected waits until no image waits to be inspected.
func awaitInspected(ctx context.Context, db *sql.DB) {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var waiting int64
		check(db.QueryRowContext(ctx, `SELECT count(*) FROM images WHERE due_ms IS NOT NULL`).Scan(&waiting))
		if waiting == 0 {
			return
		}
		if time.Since(begin) > 5*time.Minute {
			check(fmt.Errorf("%d images wait to be inspected after five minutes", waiting))
		}
	}
}

// writeRecord writes an advisory to a file.
func (b *bench) writeRecord(a vuln.Advisory) (path string) {
	path = filepath.Join(b.folder, "record.json")
	check(os.WriteFile(path, record(a, time.Now()), 0o600))
	return path
}
