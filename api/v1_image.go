package api

import (
	"context"
	"strings"

	registryv1pb "github.com/holdfast-dev/holdfast/gen/registry/v1"
	tenantpb "github.com/holdfast-dev/holdfast/gen/tenant/v1"
	"github.com/holdfast-dev/holdfast/registry"
	"github.com/holdfast-dev/holdfast/registry/evidence"
	"github.com/holdfast-dev/holdfast/resource"
)

// packageV1 writes a package that a document lists.
func packageV1(p evidence.Package) *tenantpb.Package2 {
	return &tenantpb.Package2{Id: p.ID, Name: p.Name, Version: p.Version, License: p.License, Description: p.Description, Purl: p.PURL}
}

// graphV1 writes what an image is made of.
func graphV1(s evidence.SBOM) *tenantpb.ComponentGraph {
	g := &tenantpb.ComponentGraph{}
	for _, p := range s.Packages {
		g.Nodes = append(g.Nodes, &tenantpb.ComponentGraph_Node{TypedNode: &tenantpb.ComponentGraph_Node_Package{Package: packageV1(p)}})
	}
	for _, f := range s.Files {
		file := &tenantpb.File2{Id: f.ID, Name: f.Name, Types: f.Types}
		g.Nodes = append(g.Nodes, &tenantpb.ComponentGraph_Node{TypedNode: &tenantpb.ComponentGraph_Node_File{File: file}})
	}
	for _, t := range s.Relationships {
		g.Edges = append(g.Edges, &tenantpb.ComponentGraph_Edge{SubjectId: t.From, PredicateId: t.To, Type: tenantpb.ComponentGraph_Edge_Type(t.Kind)})
	}
	return g
}

// GetSbom is of registryv1pb.RegistryServer.
func (s registryV1) GetSbom(ctx context.Context, r *registryv1pb.SbomRequest) (*tenantpb.Sbom2, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.SBOM(ctx, repo, r.GetDigest(), r.GetArch())
	if err != nil {
		return nil, err
	}
	return &tenantpb.Sbom2{
		Id: string(repo), RawSbom: got.Raw, Graph: graphV1(got.SBOM), LastSeen: timeOf(got.Attached.Time), Tool: got.Tool, Format: string(got.Format),
		GeneratedAt: timeOf(got.SBOM.Time), Authors: strings.Join(got.Authors, ", "), Source: tenantpb.Sbom2_INGESTED,
		Name: got.Name, Description: got.Description, Digest: &got.Digest,
	}, nil
}

// GetRawSbom is of registryv1pb.RegistryServer.
func (s registryV1) GetRawSbom(ctx context.Context, r *registryv1pb.RawSbomRequest) (*registryv1pb.RawSbom, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	got, err := s.registry.RawSBOM(ctx, repo, r.GetDigest(), r.GetArch())
	if err != nil {
		return nil, err
	}
	return &registryv1pb.RawSbom{RawSbom: textOf(got.Raw)}, nil
}

// textOf writes other people's bytes as a text.
func textOf(raw []byte) string { return strings.ToValidUTF8(string(raw), "\uFFFD") }

// GetImageConfig is of registryv1pb.RegistryServer.
func (s registryV1) GetImageConfig(ctx context.Context, r *registryv1pb.ImageConfigRequest) (*registryv1pb.ImageConfig, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	c, err := s.registry.Config(ctx, repo, r.GetDigest(), r.GetArch())
	if err != nil {
		return nil, err
	}
	p := &registryv1pb.ImageConfig{
		User: c.User, Env: c.Env, Entrypoint: c.Entrypoint, Cmd: c.Cmd, WorkingDir: c.WorkingDir, Labels: c.Labels, StopSignal: c.StopSignal,
		ExposedPorts: map[string]*registryv1pb.ImageConfig_ExposedPort{}, Volumes: map[string]*registryv1pb.ImageConfig_Volume{},
	}
	for port := range c.ExposedPorts {
		p.ExposedPorts[port] = &registryv1pb.ImageConfig_ExposedPort{}
	}
	for volume := range c.Volumes {
		p.Volumes[volume] = &registryv1pb.ImageConfig_Volume{}
	}
	return p, nil
}

// ListManifestMetadata is of registryv1pb.RegistryServer.
func (s registryV1) ListManifestMetadata(ctx context.Context, r *registryv1pb.ManifestMetadataFilter) (*registryv1pb.ManifestMetadataList, error) {
	repo, err := resource.ParseUID("repo_id", r.GetRepoId())
	if err != nil {
		return nil, err
	}
	out := &registryv1pb.ManifestMetadataList{}
	if len(r.GetItems()) == 0 {
		digests, err := s.registry.Manifests(ctx, repo, "", maxItems)
		for _, d := range digests {
			out.Items = append(out.Items, &registryv1pb.ManifestMetadata{Digest: d})
		}
		return out, err
	}
	all, err := s.registry.Packages(ctx, repo, convert(r.GetItems(), func(e *registryv1pb.ManifestMetadataFilterEntry) registry.ImageOf {
		if f := e.GetIndexFilter(); f != nil {
			return registry.ImageOf{Digest: f.GetDigest(), Architecture: f.GetArch()}
		}
		return registry.ImageOf{Digest: e.GetImageDigest()}
	}))
	if err != nil {
		return nil, err
	}
	out.Items = convert(all, func(s registry.SBOM) *registryv1pb.ManifestMetadata {
		return &registryv1pb.ManifestMetadata{Digest: s.Image, PkgMetadata: packagesV1(s.Packages)}
	})
	return out, nil
}

// packagesV1 writes the packages that have a package URL.
func packagesV1(packages []evidence.Package) []*registryv1pb.PkgMetadata {
	var all []*registryv1pb.PkgMetadata
	for _, p := range packages {
		if p.PURL == "" {
			continue
		}
		m := &registryv1pb.PkgMetadata{Purl: p.PURL, OriginPurl: p.Origin, License: p.License}
		if m.OriginPurl == "" {
			m.OriginPurl = p.PURL
		}
		all = append(all, m)
	}
	return all
}

// GetManifestDigestCount is of registryv1pb.RegistryServer.
func (s registryV1) GetManifestDigestCount(ctx context.Context, r *registryv1pb.ManifestDigestCountFilter) (*registryv1pb.ManifestDigestCount, error) {
	place, err := resource.ParseUID("parent_id", r.GetParentId())
	if err != nil {
		return nil, err
	}
	n, err := s.registry.CountManifests(ctx, place)
	if err != nil {
		return nil, err
	}
	return &registryv1pb.ManifestDigestCount{Count: n}, nil
}
