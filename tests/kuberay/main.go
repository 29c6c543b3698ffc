// Reads RayCluster manifests by KubeRay's own types and refuses what these do not have: keys that are unknown, values of another
// kind. Of KubeRay 1.5.0, the newest that Go's mirror has, which lacks authOptions: 1.5.1 brought them, and here is what its
// documentation says of them.
package main

import (
	"fmt"
	"os"

	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"sigs.k8s.io/yaml"
)

type authOptions struct {
	Mode               string `json:"mode"`
	SecretName         string `json:"secretName"`
	EnableK8sTokenAuth bool   `json:"enableK8sTokenAuth"`
}

func main() {
	status := 0
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			status = 1
		}
	}
	os.Exit(status)
}

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rest, err := withoutAuth(text)
	if err != nil {
		return err
	}
	var cluster rayv1.RayCluster
	if err := yaml.UnmarshalStrict(rest, &cluster); err != nil {
		return err
	}
	if cluster.APIVersion != rayv1.GroupVersion.String() || cluster.Kind != "RayCluster" {
		return fmt.Errorf("%s %s: expected a RayCluster of %s", cluster.APIVersion, cluster.Kind, rayv1.GroupVersion)
	}
	return nil
}

func withoutAuth(text []byte) ([]byte, error) {
	var manifest struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		return nil, err
	}
	given, err := yaml.Marshal(manifest.Spec["authOptions"])
	if err != nil {
		return nil, err
	}
	var auth authOptions
	if err := yaml.UnmarshalStrict(given, &auth); err != nil {
		return nil, fmt.Errorf("spec.authOptions: %w", err)
	}
	if auth.Mode != "token" {
		return nil, fmt.Errorf("spec.authOptions.mode: %q: without a token, whoever reaches Ray runs programs", auth.Mode)
	}
	var whole map[string]any
	if err := yaml.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	delete(whole["spec"].(map[string]any), "authOptions")
	return yaml.Marshal(whole)
}
