package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

const sbomType = "application/vnd.cyclonedx+json"

// sbomOf returns the SBOM of a program as CycloneDX. It lists exactly the modules that
// the linker has recorded in the program, and for the server also the packages that are
// built into its console.
func sbomOf(s source, p program, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	main := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: p.name, Version: s.version, Description: p.summary,
		PackageURL: purl(modulePath, s.version, path.Join(p.module, p.folder())),
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	main.BOMRef = main.PackageURL
	components := []cdx.Component{library("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, dep := range info.Deps {
		if dep.Path == modulePath { // the program's module is not the root
			components = append(components, library(modulePath, s.version, ""))
			continue
		}
		components = append(components, moduleOf(dep))
	}
	if p.name == server.name {
		scripts, err := consolePackages(filepath.Join(s.dir, "console", "package-lock.json"))
		if err != nil {
			return nil, err
		}
		components = append(components, scripts...)
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, sum[:]).String()
	bom.Metadata = &cdx.Metadata{Timestamp: s.date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	err = cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bom)
	return b.Bytes(), err
}

// consolePackages returns the npm packages in a lock file, without the packages that are
// needed only for development.
func consolePackages(lock string) ([]cdx.Component, error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var locked struct {
		Packages map[string]struct {
			Version, Integrity, License string
			Dev                         bool
		}
	}
	if err := json.Unmarshal(text, &locked); err != nil {
		return nil, fmt.Errorf("%s: %w", lock, err)
	}
	var all []cdx.Component
	for _, path := range slices.Sorted(maps.Keys(locked.Packages)) {
		p := locked.Packages[path]
		_, name, found := strings.Cut(path, "node_modules/")
		if !found || p.Dev {
			continue
		}
		namespace, short := "", name
		if i := strings.LastIndexByte(name, '/'); i >= 0 {
			namespace, short = name[:i], name[i+1:]
		}
		c := cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: name, Version: p.Version,
			PackageURL: packageurl.NewPackageURL(packageurl.TypeNPM, namespace, short, p.Version, nil, "").ToString(),
			Licenses:   &cdx.Licenses{{License: &cdx.License{ID: p.License}}},
		}
		c.BOMRef = c.PackageURL
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Integrity, "sha512-")); err == nil {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(raw)}}
		}
		all = append(all, c)
	}
	return all, nil
}

func moduleOf(dep *debug.Module) cdx.Component {
	m := cmp.Or(dep.Replace, dep)
	return library(m.Path, m.Version, m.Sum)
}

// library returns the SBOM component for a module. Its hash is the hash in go.sum.
func library(path, version, sum string) cdx.Component {
	c := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl(path, version, ""),
	}
	c.BOMRef = c.PackageURL
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err == nil && len(raw) == sha256.Size {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	}
	return c
}

func purl(path, version, subpath string) string {
	namespace, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		namespace, name = path[:i], path[i+1:]
	}
	return packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, version, nil, subpath).ToString()
}
