package extract

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/vuln/advisory/version"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/layer"
)

const (
	maxJarDepth   = 8
	maxDescriptor = 1 << 20 // maximum number of bytes that are read from a file that describes an archive
)

var jarExtensions = []string{".jar", ".war", ".ear", ".jmod", ".par", ".sar", ".rar", ".jpi", ".hpi", ".lpkg", ".nar",
	".aar", ".kar"}

func isJar(i *fileInfo) bool { return isJarName(i.path) && i.size > 22 } // an empty archive has 22 bytes

func isJarName(name string) bool {
	return slices.Contains(jarExtensions, strings.ToLower(path.Ext(name)))
}

// readJar reads a Java archive and the archives in it.
func readJar(ctx context.Context, file *layer.File) (*Claim, error) {
	content, err := file.Content()
	if err != nil {
		return nil, err
	}
	r := jarReader{ctx: ctx, left: maxNested}
	err = r.read(content, file.Size, file.Path, 1)
	if len(r.found) == 0 {
		return nil, err
	}
	return &Claim{packages: r.found}, err
}

// A jarReader reads an archive and the archives in it.
type jarReader struct {
	ctx   context.Context
	left  int64 // number of bytes that can still be read from archives inside the archive
	found []*entry
}

// A jarContent is what the files in one archive say about the archive.
type jarContent struct {
	properties []mavenID // from pom.properties: the archive itself, and archives that were merged into it
	models     []mavenID // the same from pom.xml
	manifest   map[string]string
}

// A mavenID identifies a Maven package.
type mavenID struct{ group, artifact, version string }

func (m mavenID) valid() bool {
	for _, s := range []string{m.group, m.artifact, m.version} {
		if s == "" || strings.ContainsAny(s, " ${}:/") {
			return false
		}
	}
	return true
}

// read adds the packages in an archive to r.found. It returns an error if parts of the archive could not be read.
func (r *jarReader) read(from io.ReaderAt, size int64, name string, depth int) error {
	if depth > maxJarDepth {
		return fmt.Errorf("archives are nested more than %d times", maxJarDepth)
	}
	archive, err := zip.NewReader(from, size)
	if err != nil {
		return err
	}
	var c jarContent
	var errs []error
	for _, f := range archive.File {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := r.entry(f, &c, depth); err != nil {
			errs = append(errs, fmt.Errorf("%.200s: %w", f.Name, err))
		}
	}
	for _, id := range c.packages(name) {
		if e := id.entry(c.manifest); e != nil {
			r.found = append(r.found, e)
		}
	}
	return errors.Join(errs[:min(len(errs), 3)]...)
}

// entry reads a file in an archive.
func (r *jarReader) entry(f *zip.File, c *jarContent, depth int) error {
	dir, base := path.Split(f.Name)
	switch {
	case base == "pom.properties":
		text, err := readZipped(f, maxDescriptor)
		c.properties = append(c.properties, parseProperties(text))
		return err
	case base == "pom.xml" && strings.HasPrefix(dir, "META-INF/maven/"):
		text, err := readZipped(f, maxDescriptor)
		c.models = append(c.models, parseModel(text, dir))
		return err
	case strings.EqualFold(f.Name, "META-INF/MANIFEST.MF"):
		text, err := readZipped(f, maxDescriptor)
		c.manifest = parseManifest(text)
		return err
	case isJarName(base):
		text, err := readZipped(f, r.left)
		if r.left -= int64(len(text)); err != nil || len(text) <= 22 {
			return err
		}
		return r.read(bytes.NewReader(text), int64(len(text)), f.Name, depth+1)
	}
	return nil
}

// readZipped returns the content of a file in an archive. It returns an error if the content has more than limit bytes.
func readZipped(f *zip.File, limit int64) ([]byte, error) {
	if f.UncompressedSize64 > uint64(limit) {
		return nil, &layer.TooLongError{Size: int64(min(f.UncompressedSize64, math.MaxInt64)), Limit: limit}
	}
	content, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	var text bytes.Buffer
	text.Grow(int(f.UncompressedSize64) + bytes.MinRead) // avoids copies of the buffer
	_, err = text.ReadFrom(content)                      // zip returns an error if there are more bytes
	return text.Bytes(), err
}

// parseProperties parses pom.properties, which Maven writes.
func parseProperties(text []byte) (id mavenID) {
	fields := map[string]*string{"groupId": &id.group, "artifactId": &id.artifact, "version": &id.version}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, "=")
		if field := fields[strings.TrimSpace(key)]; field != nil {
			*field = strings.TrimSpace(value)
		}
	}
	return id
}

// parseModel parses the pom.xml in the folder META-INF/maven/group/artifact/. Fields that it lacks come from its parent
// and from the folder.
func parseModel(text []byte, dir string) mavenID {
	var model struct {
		GroupID    string `xml:"groupId"`
		ArtifactID string `xml:"artifactId"`
		Version    string `xml:"version"`
		Parent     struct {
			GroupID string `xml:"groupId"`
			Version string `xml:"version"`
		} `xml:"parent"`
	}
	if xml.Unmarshal(text, &model) != nil {
		return mavenID{}
	}
	folders := strings.Split(strings.TrimPrefix(dir, "META-INF/maven/"), "/")
	for len(folders) < 2 {
		folders = append(folders, "")
	}
	return mavenID{cmp.Or(model.GroupID, model.Parent.GroupID, folders[0]), cmp.Or(model.ArtifactID, folders[1]),
		cmp.Or(model.Version, model.Parent.Version)}
}

// parseManifest returns the attributes of the main section of a manifest. A line that starts with a space continues the
// line before it.
func parseManifest(text []byte) map[string]string {
	attributes := map[string]string{}
	last := ""
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxDescriptor)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" && len(attributes) > 0 {
			break
		}
		if rest, ok := strings.CutPrefix(line, " "); ok && last != "" {
			attributes[last] += rest
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if last = ""; ok {
			last = strings.ToLower(key)
			attributes[last] = strings.TrimPrefix(value, " ")
		}
	}
	return attributes
}

// packages returns the packages in one archive, without the archives in it: those that Maven has described, and the
// archive itself if Maven has not described it.
func (c jarContent) packages(name string) []mavenID {
	var ids []mavenID
	for _, id := range slices.Concat(c.properties, c.models) {
		isEqual := func(other mavenID) bool { return other.group == id.group && other.artifact == id.artifact }
		if id.valid() && !slices.ContainsFunc(ids, isEqual) {
			ids = append(ids, id)
		}
	}
	self := c.self(name)
	described := func(id mavenID) bool { return id.artifact == self.artifact }
	if self.artifact == "" || self.version == "" || slices.ContainsFunc(ids, described) {
		return ids
	}
	// A single description is the archive's own, even if the file has another name. With several descriptions, the
	// archive contains other archives, and may be none of them.
	if len(ids) == 1 {
		return ids
	}
	return append(ids, self)
}

var (
	archiveVersion = regexp.MustCompile(`^[-_](v?\d|(?i:rc|build)\d)`)
	groupName      = regexp.MustCompile(`^[a-zA-Z][\w-]*(\.[\w-]+)+$`)
	bundleName     = regexp.MustCompile(`^[\w.-]+$`)
)

// self returns the identity of an archive from its file name and its manifest. The group is empty if it is not certain.
// The ID of the vendor is often the group, but not always, so it is only a hint for the comparison.
func (c jarContent) self(name string) (id mavenID) {
	base := path.Base(name)
	base = strings.TrimSuffix(base, path.Ext(base))
	bundle := c.bundle()
	if end := firstVersion(base); end > 0 {
		id.artifact, id.version = base[:end], base[end+1:]
	} else if title := c.manifest["implementation-title"]; title != "" && bundleName.MatchString(title) {
		id.artifact = title
	} else if bundle != "" {
		id.artifact = base
	}
	id.version = cmp.Or(id.version, c.manifest["implementation-version"], c.manifest["bundle-version"])
	id.version, _, _ = strings.Cut(id.version, " ")
	if i := strings.LastIndexByte(id.artifact, '.'); i > 0 && strings.Count(id.artifact, ".") >= 2 &&
		bundle == id.artifact { // the file has the name of the bundle, as in Eclipse
		id.artifact = id.artifact[i+1:]
	}
	id.group = cmp.Or(knownGroup(id.artifact), groupOfBundle(bundle, id.artifact))
	return id
}

// firstVersion returns the position of the separator before the version in the name of an archive, or -1. The separator
// is a hyphen, or an underscore if no version follows a hyphen: thing_2.13-1.0 has the version 1.0.
func firstVersion(base string) int {
	for _, separator := range []byte("-_") {
		for i := 1; i < len(base)-1; i++ {
			if base[i] == separator && archiveVersion.MatchString(base[i:]) {
				return i
			}
		}
	}
	return -1
}

// bundle returns the Bundle-SymbolicName without its parameters.
func (c jarContent) bundle() string {
	name, _, _ := strings.Cut(c.manifest["bundle-symbolicname"], ";")
	if name = strings.TrimSpace(name); !bundleName.MatchString(name) {
		return ""
	}
	return name
}

// groupOfBundle returns the group from which Maven makes the name of a bundle, or "" if several groups are possible.
// Maven joins the group and the artifact with a dot. If the artifact begins with the last word of the group, as
// log4j-core does in org.apache.logging.log4j, only the rest of the artifact follows.
func groupOfBundle(bundle, artifact string) string {
	if !strings.Contains(artifact, "-") {
		return "" // com.example.thing may be com.example:thing or com.example.thing:thing
	}
	if group, ok := strings.CutSuffix(bundle, "."+artifact); ok && strings.Contains(group, ".") {
		return group
	}
	for i := range len(artifact) {
		if artifact[i] != '-' {
			continue
		}
		group, ok := strings.CutSuffix(bundle, "."+artifact[i+1:])
		if ok && strings.HasSuffix(group, "."+artifact[:i]) {
			return group
		}
	}
	return ""
}

// knownGroups lists widely used archives that do not name their group, by the start of their name. The first entry that
// fits counts. An empty group means that the group is not certain.
var knownGroups = []struct{ prefix, group string }{
	{"spring-boot-admin", ""}, {"spring-boot", "org.springframework.boot"},
	{"spring-security-", "org.springframework.security"}, {"tomcat-embed-", "org.apache.tomcat.embed"},
	{"log4j-core", "org.apache.logging.log4j"}, {"log4j-api", "org.apache.logging.log4j"},
	{"kotlin-stdlib", "org.jetbrains.kotlin"}, {"kotlin-reflect", "org.jetbrains.kotlin"}, {"okio", "com.squareup.okio"},
}

var springModules = []string{"spring-aop", "spring-aspects", "spring-beans", "spring-context", "spring-context-support",
	"spring-core", "spring-expression", "spring-jdbc", "spring-jms", "spring-messaging", "spring-orm", "spring-oxm",
	"spring-r2dbc", "spring-tx", "spring-web", "spring-webflux", "spring-webmvc", "spring-websocket"}

// knownGroup returns the group of a widely used archive, or "".
func knownGroup(artifact string) string {
	if slices.Contains(springModules, artifact) {
		return "org.springframework"
	}
	for _, k := range knownGroups {
		if strings.HasPrefix(artifact, k.prefix) {
			return k.group
		}
	}
	return ""
}

// entry returns a package of Maven. If the group is unknown, the package has the name of its bundle and the ID of its
// vendor instead, and the comparison with advisories derives the group. entry returns nil if the identity has invalid
// characters.
func (m mavenID) entry(manifest map[string]string) *entry {
	if m.group != "" {
		if !m.valid() {
			return nil
		}
		return registryEntry("Maven", m.group+":"+m.artifact, m.version)
	}
	if !(mavenID{"group", m.artifact, m.version}).valid() {
		return nil
	}
	e := registryEntry(version.JAR, m.artifact, m.version)
	separator := "?"
	if bundle := (jarContent{manifest: manifest}).bundle(); bundle != "" {
		e.Purl += "?bundle=" + escape(bundle)
		separator = "&"
	}
	if vendor := manifest["implementation-vendor-id"]; groupName.MatchString(vendor) {
		e.Purl += separator + "vendor=" + escape(vendor)
	}
	return e
}
