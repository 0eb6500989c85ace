package v1

import (
	"context"
	"strings"

	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	tenantpb "github.com/holdfast-dev/holdfast/gen/tenant/v1"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/registry/evidence"
	"github.com/holdfast-dev/holdfast/internal/registry/metadata"
)

// packageOf converts a package that a document lists to a message.
func packageOf(p evidence.Package) *tenantpb.Package2 {
	return &tenantpb.Package2{
		Id: p.ID, Name: p.Name, Version: p.Version, License: p.License, Description: p.Description, Purl: p.PURL,
	}
}

// graphOf converts the components of an image to a message.
func graphOf(s evidence.SBOM) *tenantpb.ComponentGraph {
	g := &tenantpb.ComponentGraph{}
	for _, p := range s.Packages {
		g.Nodes = append(g.Nodes,
			&tenantpb.ComponentGraph_Node{TypedNode: &tenantpb.ComponentGraph_Node_Package{Package: packageOf(p)}})
	}
	for _, f := range s.Files {
		file := &tenantpb.File2{Id: f.ID, Name: f.Name, Types: f.Types}
		g.Nodes = append(g.Nodes, &tenantpb.ComponentGraph_Node{TypedNode: &tenantpb.ComponentGraph_Node_File{File: file}})
	}
	for _, t := range s.Relationships {
		g.Edges = append(g.Edges, &tenantpb.ComponentGraph_Edge{SubjectId: t.From, PredicateId: t.To,
			Type: tenantpb.ComponentGraph_Edge_Type(t.Kind)})
	}
	return g
}

func (s registries) GetSbom(ctx context.Context, r *registrypb.SbomRequest) (*tenantpb.Sbom2, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.SBOM(ctx, repo, r.GetDigest(), r.GetArch())
	return &tenantpb.Sbom2{
		Id: string(repo), RawSbom: got.Raw, Graph: graphOf(got.SBOM), LastSeen: wire.Time(got.Attached.Time),
		Tool: got.Tool, Format: string(got.Format),
		GeneratedAt: wire.Time(got.SBOM.Time), Authors: strings.Join(got.Authors, ", "), Source: tenantpb.Sbom2_INGESTED,
		Name: got.Name, Description: got.Description, Digest: &got.Digest,
	}, err
}

func (s registries) GetRawSbom(ctx context.Context, r *registrypb.RawSbomRequest) (*registrypb.RawSbom, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.RawSBOM(ctx, repo, r.GetDigest(), r.GetArch())
	return &registrypb.RawSbom{RawSbom: textOf(got.Raw)}, err
}

// textOf returns bytes as text and replaces bytes that are not UTF-8.
func textOf(raw []byte) string { return strings.ToValidUTF8(string(raw), "\uFFFD") }

func (s registries) GetImageConfig(
	ctx context.Context, r *registrypb.ImageConfigRequest,
) (*registrypb.ImageConfig, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.Config(ctx, repo, r.GetDigest(), r.GetArch())
	p := &registrypb.ImageConfig{
		User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, Labels: c.Labels,
		StopSignal:   c.StopSignal,
		ExposedPorts: map[string]*registrypb.ImageConfig_ExposedPort{}, Volumes: map[string]*registrypb.ImageConfig_Volume{},
	}
	for port := range c.ExposedPorts {
		p.ExposedPorts[port] = &registrypb.ImageConfig_ExposedPort{}
	}
	for volume := range c.Volumes {
		p.Volumes[volume] = &registrypb.ImageConfig_Volume{}
	}
	return p, err
}

func (s registries) ListManifestMetadata(
	ctx context.Context, r *registrypb.ManifestMetadataFilter,
) (*registrypb.ManifestMetadataList, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	out := &registrypb.ManifestMetadataList{}
	if len(r.GetItems()) == 0 {
		digests, err := s.registry.Manifests(ctx, repo, "", maxItems)
		for _, d := range digests {
			out.Items = append(out.Items, &registrypb.ManifestMetadata{Digest: d})
		}
		return out, err
	}
	packages, err := s.registry.Packages(ctx, repo,
		wire.Convert(r.GetItems(), func(e *registrypb.ManifestMetadataFilterEntry) metadata.ImageOf {
			if f := e.GetIndexFilter(); f != nil {
				return metadata.ImageOf{Digest: f.GetDigest(), Architecture: f.GetArch()}
			}
			return metadata.ImageOf{Digest: e.GetImageDigest()}
		}))
	if err != nil {
		return nil, err
	}
	out.Items = wire.Convert(packages, func(s metadata.SBOM) *registrypb.ManifestMetadata {
		return &registrypb.ManifestMetadata{Digest: s.Image, PkgMetadata: packagesOf(s.Packages)}
	})
	return out, nil
}

// packagesOf converts the packages that have a package URL to messages.
func packagesOf(packages []evidence.Package) []*registrypb.PkgMetadata {
	var all []*registrypb.PkgMetadata
	for _, p := range packages {
		if p.PURL == "" {
			continue
		}
		m := &registrypb.PkgMetadata{Purl: p.PURL, OriginPurl: p.Origin, License: p.License}
		if m.OriginPurl == "" {
			m.OriginPurl = p.PURL
		}
		all = append(all, m)
	}
	return all
}

func (s registries) GetManifestDigestCount(
	ctx context.Context, r *registrypb.ManifestDigestCountFilter,
) (*registrypb.ManifestDigestCount, error) {
	place, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	n, err := s.registry.CountManifests(ctx, place)
	return &registrypb.ManifestDigestCount{Count: n}, err
}
