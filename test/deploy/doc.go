// Package deploy tests what stands in the folder deploy: that manifests and units can be parsed, that they fit together, and
// that the binary takes every flag and every key they use.
package deploy
