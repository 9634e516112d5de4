"""Speed and size of the embedding service, against ONNX Runtime called by hand."""
